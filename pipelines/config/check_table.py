"""Configuration of a custom check of an agent."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from forewarn.features.time_units import SECOND
from forewarn.pipelines.config.toml_tables import Duration, StrictTable, parse_duration

__all__ = ["CheckName", "CheckTable"]

CheckName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_Argument = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]


class CheckTable(StrictTable):
    """A custom check, `[check.NAME]`; only the agent's own policy can set it.

    Attributes
    ----------
    command : tuple of str
        Program and arguments, run without a shell. Exit code 0: ok, 1: warning, 2: critical,
        3: unknown.
    every : int
        Nanoseconds between the starts of two runs, which never overlap.
    timeout : int
        Nanoseconds; the program and its children are then killed, and the result is unknown.
    """

    command: Annotated[tuple[_Argument, ...], Field(min_length=1, max_length=256)]
    every: Duration = parse_duration("5min")
    timeout: Duration = parse_duration("30s")

    @field_validator("command")
    @classmethod
    def _names_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command[0].strip():
            raise ValueError("`command` begins with an empty text, expected a program")
        return command

    @field_validator("every")
    @classmethod
    def _is_slow_enough(cls, every: int) -> int:
        if every < SECOND:
            raise ValueError('expected at least "1s"')
        return every

    @field_validator("timeout")
    @classmethod
    def _ends_before_next(cls, timeout: int, info: ValidationInfo) -> int:
        if timeout > info.data.get("every", timeout):
            raise ValueError("expected at most `every`, since runs do not overlap")
        return timeout

    def identity(self) -> str:
        """Return the hash of the definition: a changed definition is another check."""
        parts = json.dumps([self.command, self.every, self.timeout])
        return hashlib.sha256(parts.encode()).hexdigest()[:12]
