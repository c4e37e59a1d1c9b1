"""Entries of the ledger other than incidents, decisions and actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import ActionState

__all__ = [
    "CHECK_BEGUN",
    "CHECK_FAILED",
    "CHECK_PASSED",
    "ActionChange",
    "AuditNote",
    "ConfirmedFailure",
    "RecordedCounts",
    "SwitchChange",
]

# What the detail of an action change begins with when the site's check of its machine is recorded.
CHECK_BEGUN: Final = "check begun"
CHECK_PASSED: Final = "check passed"
CHECK_FAILED: Final = "check failed"


@dataclass(frozen=True, slots=True)
class RecordedCounts:
    """Result of recording findings: `new` ones, and `repeated` ones that were counted."""

    new: int
    repeated: int


@dataclass(frozen=True, slots=True)
class ActionChange:
    """One state change of an action; `version` 0 is its start, `at` in nanoseconds UTC."""

    version: int
    state: ActionState
    at: Nanoseconds
    who: str
    detail: str


@dataclass(frozen=True, slots=True)
class ConfirmedFailure:
    """A failure confirmed by an outcome; times in nanoseconds since 1970 UTC."""

    incident: int
    machine: str
    gpu_serial: str | None
    failed_at: Nanoseconds
    known_at: Nanoseconds
    why: str


@dataclass(frozen=True, slots=True)
class SwitchChange:
    """Acting was switched off (`acting` is False) or on. `at` is in nanoseconds since 1970 UTC."""

    acting: bool
    at: Nanoseconds
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class AuditNote:
    """An act over the API or the command line. `at` is in nanoseconds since 1970 UTC."""

    at: Nanoseconds
    who: str
    act: str
    target: str
    detail: str
