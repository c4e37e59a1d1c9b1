"""Actions of forewarn on one machine, and their states."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import DrainMode, Step

__all__ = ["ENDED_STATES", "Action", "ActionState"]


class ActionState(StrEnum):
    """State of an action; each change is a row of the ledger.

    `INTENDED` is written before the scheduler is called. `SENT`: the driver was called, and success
    is not confirmed; a time-out means unknown, not failed. `HOLDING`: the scheduler shows the
    action. `DRAINED`: no job is left on the machine. `RELEASING`: to be undone. Final states:
    `RELEASED` (undone by forewarn), `OVERRIDDEN` (undone or replaced by a manual change), `FAILED`
    (the driver refused), `EXPIRED` (never sent, and no longer valid).
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
    """Action of forewarn on one machine.

    Attributes
    ----------
    id : int
        0 until the ledger has assigned a number.
    incident : int
    machine : str
    pool : str
    rack, job : str or None
    cause : str
    step : Step
        `AVOID`, or the purpose of the isolation.
    mode : DrainMode or None
    at, valid_until : int
        Nanoseconds since 1970 UTC: time of the decision, and the time after which it is not
        started.
    changed_at : int
        Time of the last change of state.
    state : ActionState
    version : int
        Number of changes; a writer passes the version that it read (optimistic locking).
    jobs : int
        Jobs on the machine at the time of the decision, for the limit of killed jobs.
    gpus, job_gpus : int
        GPUs of the machine, and of the job on it, for the score.
    gpu_serial : str or None
        Serial of the incident; None if the incident is about the machine, or the serial is unknown.
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
        """Tell whether the action has not ended."""
        return self.state not in ENDED_STATES

    def spares(self, machine: Machine | None, gpu_serial: str | None) -> bool:
        """Tell whether the action has taken out only another GPU of its machine than this one.

        Parameters
        ----------
        machine : Machine or None
            The machine of the action, as just read.
        gpu_serial : str or None
            None stands for the machine itself.
        """
        only_gpu = machine is not None and self.id in machine.device_actions
        return only_gpu and (gpu_serial is None or gpu_serial != self.gpu_serial)

    @property
    def started(self) -> bool:
        """Tell whether the action may have changed the machine, now or earlier."""
        return self.state not in _NEVER_STARTED
