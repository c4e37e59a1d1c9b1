"""Interruptions of a job, and what its framework and scheduler can do about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.rung import Rung

__all__ = ["FaultOrigin", "JobAbilities", "JobCrash", "NoSpare", "is_same_cause"]

_PLACES: Final = re.compile(r"\brank \d+|0x[0-9a-f]+|\d{4,}")
_EXCLUDED_BY_GRACEFUL: Final = (Rung.STEP_RETRY, Rung.PROCESS)


class FaultOrigin(StrEnum):
    """What evidence says about the origin of an interruption.

    `EXPLICIT`: damage of one machine was reported. `IMPLICIT`: one machine behaves differently from
    its peers, such as by a hang. `NOT_ONE`: nothing names one machine.
    """

    EXPLICIT = "explicit"
    IMPLICIT = "implicit"
    NOT_ONE = "not_one"


class NoSpare(StrEnum):
    """What a job does if a machine has to be replaced and no spare is there.

    `SHRINK`: it goes on with fewer machines. `WAIT`: it waits for one. `STAY`: it starts again on
    the machines that it has.
    """

    SHRINK = "shrink"
    WAIT = "wait"
    STAY = "stay"


@dataclass(frozen=True, slots=True)
class JobCrash:
    """Interruption of a job.

    Attributes
    ----------
    at : int
        Nanoseconds since 1970 UTC.
    origin : FaultOrigin
    cause : str
        First cause; empty if unknown.
    machine : str or None
        The machine, unless the origin is not one.
    hits_rank_zero : bool
        Whether rank 0 ran there.
    rung : Rung or None
        Where the level of the fault begins; None: the origin decides.

    Raises
    ------
    ValueError
        If a machine is missing, or named without evidence against it.
    """

    at: Nanoseconds
    origin: FaultOrigin
    cause: str = ""
    machine: str | None = None
    hits_rank_zero: bool = False
    rung: Rung | None = None

    def __post_init__(self) -> None:
        """Refuse a crash that names no machine where its origin is one."""
        if (self.origin is FaultOrigin.NOT_ONE) != (self.machine is None):
            raise ValueError(f"`machine` is {self.machine!r}, which does not fit {self.origin}.")


def is_same_cause(first: str, second: str) -> bool:
    """Tell whether two causes are the same, whatever ranks and addresses they name.

    Examples
    --------
    >>> is_same_cause("rank 3 ended by signal 11", "rank 17 ended by signal 11")
    True
    """
    masked = [_PLACES.sub("#", cause) for cause in (first, second)]
    return bool(first) and masked[0] == masked[1]


@dataclass(frozen=True, slots=True)
class JobAbilities:
    """What the framework and the scheduler of a job can do.

    Attributes
    ----------
    rungs : frozenset of Rung
        `RESUBMIT` is always among them: a person can do it.
    rank_zero_needs_job : bool
        Whether the loss of rank 0's machine ends the job.
    graceful : bool
        Whether it stops its processes, waits for the reset of a GPU and starts again in place. Such
        a framework cannot restart single processes or retry a step.
    without_spare : tuple of NoSpare
        What the job may do if no spare is there, its wish first; several: the least expected loss
        decides.

    Raises
    ------
    ValueError
        If modes exclude each other.
    """

    rungs: frozenset[Rung] = frozenset({Rung.RESTART, Rung.REQUEUE, Rung.RESUBMIT})
    rank_zero_needs_job: bool = False
    graceful: bool = False
    without_spare: tuple[NoSpare, ...] = (NoSpare.WAIT,)

    def __post_init__(self) -> None:
        """Refuse modes that exclude each other."""
        excluded = [rung for rung in _EXCLUDED_BY_GRACEFUL if self.graceful and rung in self.rungs]
        if excluded:
            raise ValueError(f"`graceful` and the rung {excluded[0]} exclude each other.")

    def can(self, rung: Rung) -> bool:
        """Tell whether a rung is possible."""
        return rung is Rung.RESUBMIT or rung in self.rungs
