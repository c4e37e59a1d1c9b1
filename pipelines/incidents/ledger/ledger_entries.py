"""What the ledger says beside incidents, decisions and actions."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import ActionState

__all__ = ["ActionChange", "AuditNote", "ConfirmedFailure", "RecordedCounts", "SwitchChange"]


@dataclass(frozen=True, slots=True)
class RecordedCounts:
    """What became of findings: `new` were not known, `repeated` were counted."""

    new: int
    repeated: int


@dataclass(frozen=True, slots=True)
class ActionChange:
    """One change of an action; `version` 0 is its beginning. `at` is in nanoseconds UTC."""

    version: int
    state: ActionState
    at: Nanoseconds
    who: str
    detail: str


@dataclass(frozen=True, slots=True)
class ConfirmedFailure:
    """A failure that an outcome confirms; times in nanoseconds UTC."""

    incident: int
    machine: str
    gpu_serial: str | None
    failed_at: Nanoseconds
    known_at: Nanoseconds
    why: str


@dataclass(frozen=True, slots=True)
class SwitchChange:
    """Acting was switched off (`acting` is false) or on again. `at` is in nanoseconds UTC."""

    acting: bool
    at: Nanoseconds
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class AuditNote:
    """Who did what to what, over the API or the command line. `at` is in nanoseconds UTC."""

    at: Nanoseconds
    who: str
    act: str
    target: str
    detail: str
