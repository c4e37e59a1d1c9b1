"""Blockers: why a step is not taken, and until when."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds

__all__ = ["Blocker", "BlockerKind"]


class BlockerKind(StrEnum):
    """Kind of a blocker, for metrics: a limit by its name in the configuration, or another reason.

    `HANDLED`: an action does or did this already. `STALE`: the findings are too old, or were known
    before a return to service. `EXCLUDED`: the machine is in no pool, opted out or unknown.
    """

    SHARE = "share"
    RACK = "rack"
    MACHINES = "machines"
    JOB = "job"
    CAUSE = "cause"
    FLEET_RATE = "fleet_rate"
    PREDICTIONS = "predictions"
    KILLED_JOBS = "killed_jobs"
    AVOIDED = "avoided"
    INTERLOCK = "interlock"
    MODE = "mode"
    HOLDOUT = "holdout"
    PERSON = "person"
    EVENT = "event"
    OVERRIDE = "override"
    OUT = "out"
    HANDLED = "handled"
    STALE = "stale"
    EXCLUDED = "excluded"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Blocker:
    """Reason why a step is not taken.

    Attributes
    ----------
    reason : str
    until : int or None
        Nanoseconds since 1970 UTC at which it may end by itself. None: it depends on machines.
    kind : BlockerKind
        For metrics; not compared, because the reason says more.
    """

    reason: str
    until: Nanoseconds | None
    kind: BlockerKind = field(default=BlockerKind.OTHER, compare=False)
