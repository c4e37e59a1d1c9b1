"""Blocks: a machine that one job does not use any more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds

__all__ = ["BlockState", "JobBlock"]


class BlockState(StrEnum):
    """State of a block; each change is a row of the ledger.

    `INTENDED`: requested, limits are not checked yet. `ACTIVE`: the scheduler is asked as soon as
    the job waits to start. `HOLDING`: the scheduler shows the block. `LIFTING`: to be removed.
    Final: `ENDED`, and `REFUSED` by a limit or the scheduler.
    """

    INTENDED = "intended"
    ACTIVE = "active"
    HOLDING = "holding"
    LIFTING = "lifting"
    ENDED = "ended"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class JobBlock:
    """A machine that one job must not use when it starts again.

    Attributes
    ----------
    id : int
        0 until the ledger has assigned a number.
    job, machine : str
    reason, owner : str
        Why, and who asked for it.
    at, valid_until : int
        Nanoseconds since 1970 UTC. It also ends with the job.
    state : BlockState
    version : int
        Number of changes.
    detail : str
        Why the state changed last.
    job_owner : str
        User or namespace of the job; empty until the scheduler was asked.
    """

    id: int
    job: str
    machine: str
    reason: str
    owner: str
    at: Nanoseconds
    valid_until: Nanoseconds
    state: BlockState = BlockState.INTENDED
    version: int = 0
    detail: str = ""
    job_owner: str = ""

    @property
    def open(self) -> bool:
        """Tell whether the block has not ended."""
        return self.state not in (BlockState.ENDED, BlockState.REFUSED)
