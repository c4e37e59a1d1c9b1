"""Pools: machines of one owner, what may be done to them, and how many at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import DAY, Nanoseconds

__all__ = ["Limits", "Mode", "Pool"]


class Mode(StrEnum):
    """Who may act: nobody, a person who approves, or forewarn."""

    OBSERVE = "observe"
    PROPOSE = "propose"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Limits:
    """How many machines may be out of service, by whomever, before we take out one more.

    Attributes
    ----------
    machines : int or None
        Of the pool, in number; None for no such limit.
    share : float
        Of the pool's GPU machines. A pool so small that the share is less than one machine may
        lose one while none is out.
    rack, job, cause : int
        Of one rack, under one job, and taken out by us for one cause within `refill`.
    fleet_rate : int
        Taken out by us in the whole fleet within `refill`.
    killed_jobs : int
        Jobs that we end within `refill`: drains `now`, and deadlines that are reached.
    avoided : float
        Share of the pool's GPU machines that new jobs may be told to avoid, at least one machine.
    refill : int
        Nanoseconds after which what we took no longer counts for the rates.
    """

    machines: int | None = None
    share: float = 0.02
    rack: int = 1
    job: int = 1
    cause: int = 5
    fleet_rate: int = 10
    killed_jobs: int = 1
    avoided: float = 0.25
    refill: Nanoseconds = DAY


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines of one owner.

    Attributes
    ----------
    name : str
    mode : Mode
    control : float
        Share of would-be drains by prediction alone that are left alone, to measure precision.
    limits : Limits
    """

    name: str
    mode: Mode = Mode.OBSERVE
    control: float = 0.0
    limits: Limits = Limits()
