"""TOML of a job that `forewarn launch` starts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from forewarn.features.hostlist import HostlistError, expand
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.config.toml_tables import (
    Count,
    Duration,
    SettingsError,
    StrictTable,
    describe_validation_error,
    read_toml,
)
from forewarn.response.recovery.rank_assignment import check_sizes

__all__ = ["LaunchTable", "host_command", "read_launch_table"]

_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_FIELD: Final = re.compile(r"\{(\w*)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _expanded(lists: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of host lists, each once."""
    try:
        names = [name for text in lists for name in expand(text)]
    except HostlistError as error:
        raise ValueError(f"expected host lists such as node-[1-8]: {error}") from None
    invalid = next((name for name in names if not _HOST.fullmatch(name)), None)
    if invalid is not None:
        raise ValueError(f"expected names of hosts, found {invalid[:60]!r}")
    if len(set(names)) < len(names):
        raise ValueError("expected each host once")
    return tuple(names)


def _checked_command(words: tuple[str, ...]) -> tuple[str, ...]:
    fields = {name for word in words for name in _FIELD.findall(word)}
    if words and (fields - {"host", "command"} or "host" not in fields):
        raise ValueError('expected words with {host} and perhaps {command}, as ["ssh", "{host}"]')
    return words


def _checked_variables(variables: dict[str, str]) -> dict[str, str]:
    invalid = next((name for name in variables if not _VARIABLE.fullmatch(name)), None)
    if invalid is not None:
        raise ValueError(f"expected names of variables, found {invalid[:60]!r}")
    return variables


class LaunchTable(StrictTable):
    """A job: its hosts, its program, and what may be done when it stops.

    Attributes
    ----------
    hosts : tuple of str
        More than `nodes`: the last ones are spares.
    nodes, unit, minimum : int
        Machines that train, of which the number is a multiple of `unit` and at least `minimum`.
    processes : int
        Per machine.
    program : tuple of str
        Script with its arguments.
    folder : Path
        Shared by the hosts.
    on_host : tuple of str
        Command that runs another one on a host; empty: all hosts are this machine.
    launcher : {"torchrun", "dlrover"}
        What starts the processes of a host. With DLRover a spare takes the rank of a lost host
        while the others wait for it; its master runs on this machine.
    python : str
    port : int
        Of rank 0, or of DLRover's master, for the meeting of the machines.
    environment : dict of str to str
    silence, start : int
        Nanoseconds without a line in any log after which a job hangs, and before its first step.
    look : int
        Between two diagnoses of a running job, nanoseconds.
    grace : int
        Between TERM and KILL, nanoseconds.
    save : int or None
        Nanoseconds that the job needs to save when it is asked to; None: it cannot be asked.
    evidence : Path or None
        Folder to which agents collect what is known of jobs.
    diagnoses : Path or None
        File to which each diagnosis is appended.
    """

    hosts: Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_expanded)]
    nodes: Count
    processes: Count
    program: Annotated[tuple[str, ...], Field(min_length=1)]
    folder: Path
    unit: Count = 1
    minimum: Count = Field(default=0, validate_default=False)
    on_host: Annotated[tuple[str, ...], AfterValidator(_checked_command)] = ()
    launcher: Literal["torchrun", "dlrover"] = "torchrun"
    python: str = "python3"
    port: Annotated[int, Field(ge=1, le=65_535, strict=True)] = 29_500
    environment: Annotated[dict[str, str], AfterValidator(_checked_variables)] = Field(
        default_factory=dict
    )
    silence: Duration = 10 * MINUTE
    start: Duration = 30 * MINUTE
    look: Duration = MINUTE
    grace: Duration = 30 * SECOND
    save: Duration | None = None
    evidence: Path | None = None
    diagnoses: Path | None = None

    @model_validator(mode="before")
    @classmethod
    def _minimum_is_nodes(cls, values: object) -> object:
        """Make a job that states no minimum one that does not shrink."""
        if isinstance(values, dict) and "nodes" in values:
            return {"minimum": values["nodes"], **values}
        return values

    @model_validator(mode="after")
    def _check_sizes(self) -> LaunchTable:
        check_sizes(self.nodes, self.unit, self.minimum)
        if len(self.hosts) < self.minimum:
            raise ValueError(
                f"expected at least `minimum` ({self.minimum}) hosts, found {len(self.hosts)}"
            )
        return self


def read_launch_table(path: Path) -> LaunchTable:
    """Read the TOML of a job.

    Raises
    ------
    SettingsError
        If it cannot be used; paths in it are relative to its folder.
    """
    values = read_toml(path)
    try:
        table = LaunchTable.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"{path}: {describe_validation_error(error)}.") from None
    base = path.parent
    return table.model_copy(
        update={
            name: base / value
            for name in ("folder", "evidence", "diagnoses")
            if (value := getattr(table, name)) is not None
        }
    )


def host_command(on_host: Sequence[str], host: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs another one on a host.

    Parameters
    ----------
    on_host : sequence of str
        Words in which `{host}` stands for the host. A word `{command}` stands for the whole command
        quoted for a shell, as `ssh` needs it; without it, the command's words follow.
    host : str
    command : sequence of str

    Examples
    --------
    >>> host_command(["ssh", "{host}", "{command}"], "node-1", ["echo", "a b"])
    ['ssh', 'node-1', "echo 'a b'"]
    >>> host_command(["srun", "-w", "{host}"], "node-1", ["echo", "a b"])
    ['srun', '-w', 'node-1', 'echo', 'a b']
    """
    values = {"host": host, "command": shlex.join(command)}
    words = [_FIELD.sub(lambda field: values[field[1]], word) for word in on_host]
    return words if any("{command}" in word for word in on_host) else [*words, *command]
