"""Actions: what forewarn does to one machine, from the intention to the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.step import DrainMode, Step

__all__ = ["ENDED_STATES", "Action", "ActionState"]


class ActionState(StrEnum):
    """How far an action has come; each change is a row of the ledger.

    `INTENDED` is written before anything is touched. `SENT`: the driver was told and its answer is
    not confirmed, or was a time-out, which means unknown and not failed. `HOLDING`: read back, and
    it holds. `DRAINED`: no job is left on the machine. `RELEASING`: to be undone. The others end
    it: `RELEASED` (undone by us), `OVERRIDDEN` (somebody undid or took it over), `FAILED` (the
    driver refused), `EXPIRED` (never sent, and no longer valid).
    """

    INTENDED = "intended"
    SENT = "sent"
    HOLDING = "holding"
    DRAINED = "drained"
    RELEASING = "releasing"
    RELEASED = "released"
    OVERRIDDEN = "overridden"
    FAILED = "failed"
    EXPIRED = "expired"


_NEVER_STARTED = frozenset({ActionState.FAILED, ActionState.EXPIRED})
ENDED_STATES = frozenset(
    {ActionState.RELEASED, ActionState.OVERRIDDEN, ActionState.FAILED, ActionState.EXPIRED}
)


@dataclass(frozen=True, slots=True)
class Action:
    """Something that is done to one machine.

    Attributes
    ----------
    id : int
        0 as long as the ledger has not written it.
    incident : int
    machine : str
    pool : str
    rack, job : str or None
    cause : str
    step : Step
        `AVOID`, or what the machine is isolated for.
    mode : DrainMode or None
    at, valid_until : int
        Nanoseconds since 1970 UTC: when it was intended, and after which it is not begun.
    changed_at : int
        When it came to its state.
    state : ActionState
    version : int
        Number of changes so far; whoever changes it names the one that it has read.
    jobs : int
        Running on the machine when it was intended, for the limit of killed jobs.
    gpus, job_gpus : int
        Of the machine, and of the job on it, for the score.
    gpu_serial : str or None
        Of the incident; None where it is about the machine, or nobody wrote it down.
    """

    id: int
    incident: int
    machine: str
    pool: str
    rack: str | None
    job: str | None
    cause: str
    step: Step
    mode: DrainMode | None
    at: Nanoseconds
    valid_until: Nanoseconds
    changed_at: Nanoseconds
    state: ActionState = ActionState.INTENDED
    version: int = 0
    jobs: int = 0
    gpus: int = 0
    job_gpus: int = 0
    gpu_serial: str | None = None

    @property
    def open(self) -> bool:
        """Tell whether it still wants something of the machine."""
        return self.state not in ENDED_STATES

    @property
    def started(self) -> bool:
        """Tell whether it may have touched the machine, now or before."""
        return self.state not in _NEVER_STARTED
