"""Definition of a check: a table `[check.NAME]` of a TOML file."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from forewarn.features.duration import parse_duration

__all__ = [
    "CATEGORIES",
    "UNITS",
    "CheckCategory",
    "CheckLimit",
    "CheckName",
    "CheckTable",
    "CheckValue",
    "ChecksFile",
]

CheckCategory = Literal[
    "identity",
    "gpu",
    "memory",
    "cpu",
    "fabric",
    "network",
    "storage",
    "software",
    "training",
]
CATEGORIES: Final[tuple[CheckCategory, ...]] = get_args(CheckCategory)
UNITS: Final = frozenset(
    (
        *("1", "count", "%", "digest", "state", "lanes", "op/s"),
        *("ns", "us", "ms", "s", "MHz", "GHz", "mC", "C", "W"),
        *("B", "kB", "KiB", "MiB", "GiB", "KiB/s", "MiB/s", "GiB/s", "MB/s", "GB/s"),
        *("Mbit/s", "Gbit/s", "GT/s", "GFLOP/s", "TFLOP/s"),
    )
)
"""Units of values. `digest` is the hash of a text that is compared as a whole, `state` a number
that stands for a word, `1` a ratio."""

CheckName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_Argument = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
_Pattern = Annotated[str, Field(min_length=1, max_length=4096)]
_Duration = Annotated[int, BeforeValidator(parse_duration)]
_Occasion = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}(:[a-z]{1,16})?$")]
_DEFAULT_EVERY = parse_duration("5min")
_SAFE_FILES = ("/sys/", "/proc/", "/etc/", "/run/", "/dev/shm/")


class _Table(BaseModel):
    """A table in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CheckValue(_Table):
    """Where the value of a check comes from, and its unit; without a source it is the exit code.

    Attributes
    ----------
    json_path : str or None
        Key `json`: keys and positions joined by `.`; `*` matches all, and each match is a slot.
    regex : str or None
        The value is the group `value`, or the first; with a group `slot` each match is a value.
    lines : str or None
        Pattern; the value is the number of lines that it matches.
    count : str or None
        Pattern of paths; the value is the number of paths that match it.
    file : str or None
        File to read instead of the output; `{slot}` and `*` match any name.
    builtin : str or None
        Name of a measurement that forewarn makes itself, with `args`.
    words : dict of str to float
        Numbers for texts, such as `{Yes = 1, No = 0}`.
    unit : str
        One of `UNITS`.
    better : {"higher", "lower", "equal"}
        Direction; `equal`: a machine should have the value of its siblings.
    """

    json_path: Annotated[str | None, Field(alias="json", min_length=1, max_length=512)] = None
    regex: _Pattern | None = None
    lines: _Pattern | None = None
    count: _Pattern | None = None
    file: _Pattern | None = None
    builtin: Annotated[str | None, Field(pattern=r"^[a-z_]{1,64}$")] = None
    args: tuple[_Argument, ...] = ()
    words: dict[str, float] = Field(default_factory=dict)
    unit: str = "1"
    better: Literal["higher", "lower", "equal"] = "higher"

    @field_validator("unit")
    @classmethod
    def _is_known(cls, unit: str) -> str:
        if unit not in UNITS:
            raise ValueError(f"expected one of {', '.join(sorted(UNITS))}")
        return unit

    @field_validator("regex", "lines")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"expected a regular expression ({error})") from None
        return pattern

    @field_validator("file", "count")
    @classmethod
    def _is_local(cls, path: str | None) -> str | None:
        # Read without a process of its own, so a file that blocks would block the runner.
        if path is not None and (not path.startswith(_SAFE_FILES) or ".." in path.split("/")):
            raise ValueError(f"expected a path below one of {', '.join(_SAFE_FILES)}")
        return path

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = [
            name
            for name in ("json", "regex", "lines", "count", "builtin")
            if getattr(self, "json_path" if name == "json" else name) is not None
        ]
        if len(sources) > 1:
            raise ValueError(f"`value` has `{sources[0]}` and `{sources[1]}`, expected one source")
        if self.file is not None and sources in (["count"], ["builtin"]):
            raise ValueError(f"`value` has `file` and `{sources[0]}`, expected one source")
        if self.args and self.builtin is None:
            raise ValueError("`value` has `args` without `builtin`, expected both")
        return self

    @property
    def reads_output(self) -> bool:
        """Whether the value comes from a command."""
        return self.file is None and self.count is None and self.builtin is None


class CheckLimit(_Table):
    """Absolute limits of a value, which belong to the valid values."""

    min: Annotated[float | None, Field(allow_inf_nan=False)] = None
    max: Annotated[float | None, Field(allow_inf_nan=False)] = None

    @model_validator(mode="after")
    def _is_interval(self) -> Self:
        if self.min is None and self.max is None:
            raise ValueError("`limit` is empty, expected `min` or `max`")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"`limit` has min {self.min:g} above max {self.max:g}")
        return self


class CheckTable(_Table):
    """A check, of an inspection or of an agent.

    Attributes
    ----------
    command : tuple of str
        Program and arguments, run without a shell; empty if `value` needs none. `{scratch}` is a
        folder for files. Without a source in `value` the exit code is the result: 0 ok, 1 warning,
        2 critical, 3 unknown.
    value : CheckValue
    category : str
        One of `CATEGORIES`.
    description : str
        What a bad value means.
    every : int
        Nanoseconds between the starts of two runs of an agent, which never overlap.
    timeout : int
        Nanoseconds; the program and its children are then killed.
    repeat : int
        Values to take in an inspection.
    programs : tuple of str
        Programs that have to be installed; without one of them the check does not run.
    conditions : tuple of str
        `gpu`, `root`, `idle`, `pair` or `ring`: what has to hold.
    when : tuple of str
        Sets that contain the check: `quick`, `accept`, `burn_in`, `weekly`, and others that a site
        chooses, or `suspect:CATEGORY`.
    compare : tuple of str
        `fleet`, `own`, or both: what values are compared with, apart from `limit`.
    limit : CheckLimit or None
    level : {"note", "no_new_jobs", "drain"}
        What a failure means for the machine.
    required : bool
        Whether an acceptance is incomplete without a result.
    """

    command: Annotated[tuple[_Argument, ...], Field(max_length=256)] = ()
    value: CheckValue = CheckValue()
    category: CheckCategory = "software"
    description: Annotated[str, Field(max_length=300)] = ""
    every: _Duration = _DEFAULT_EVERY
    timeout: _Duration = parse_duration("30s")
    repeat: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    programs: tuple[_Argument, ...] = ()
    conditions: tuple[Literal["gpu", "root", "idle", "pair", "ring"], ...] = ()
    when: tuple[_Occasion, ...] = ()
    compare: tuple[Literal["fleet", "own"], ...] = ()
    limit: CheckLimit | None = None
    level: Literal["note", "no_new_jobs", "drain"] = "no_new_jobs"
    required: bool = False

    @field_validator("command", mode="before")
    @classmethod
    def _is_list(cls, command: object) -> object:
        if isinstance(command, str):
            raise ValueError('expected a list such as ["fio", "--name=r"], since no shell runs it')
        return command

    @field_validator("every")
    @classmethod
    def _is_slow_enough(cls, every: int) -> int:
        if every < 10**9:
            raise ValueError('expected at least "1s"')
        return every

    @field_validator("when")
    @classmethod
    def _names_category(cls, when: tuple[str, ...]) -> tuple[str, ...]:
        for occasion in when:
            trigger, _, category = occasion.partition(":")
            if category and (trigger != "suspect" or category not in CATEGORIES):
                raise ValueError(f"expected `suspect:` and one of {', '.join(CATEGORIES)}")
        return when

    @model_validator(mode="after")
    def _has_source(self) -> Self:
        if self.command and not self.command[0].strip():
            raise ValueError("`command` begins with an empty text, expected a program")
        if self.value.reads_output and not self.command:
            raise ValueError("`command` is missing, expected it or a `value` that needs none")
        if self.command and not self.value.reads_output:
            raise ValueError("`command` is not used by `value`, expected one of them")
        return self

    def identity(self) -> str:
        """Return the hash of what is measured: a changed definition is another check."""
        parts: list[object] = [self.command, self.every, self.timeout]
        if self.value != CheckValue():
            parts.append(self.value.model_dump(mode="json", exclude_defaults=True))
        if self.limit is not None:
            parts.append(self.limit.model_dump(mode="json"))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


class ChecksFile(_Table):
    """A file of checks.

    Attributes
    ----------
    check : dict of str to CheckTable
    """

    check: dict[CheckName, CheckTable] = Field(default_factory=dict, max_length=1000)
