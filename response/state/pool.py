"""Pools: machines of one owner, what may be done to them, and how many at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forewarn.features.time_units import DAY, Nanoseconds

__all__ = ["Limits", "Pool", "PoolMode", "share_to_count"]

_DEFAULT_FLEET_RATE: Final = 0.01
_MIN_FLEET_RATE: Final = 2


class PoolMode(StrEnum):
    """Who may act: nobody, a person who approves, or forewarn."""

    OBSERVE = "observe"
    PROPOSE = "propose"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Limits:
    """How many machines may be out of service before we take out one more.

    Attributes
    ----------
    machines : int or None
        Of the pool, in number, whoever took them out; None for no such limit.
    share : float
        Of the pool's GPU machines, taken out by us for what is no certain damage. A pool so small
        that the share is less than one machine may lose one.
    rack : int
        The same, of one rack.
    job, cause : int
        Under one job, and taken out by us for one cause within `refill`.
    fleet_rate : int or None
        Taken out by us in the whole fleet within `refill`. None: 1 % of its GPU machines, and at
        least 2.
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
    fleet_rate: int | None = None
    killed_jobs: int = 1
    avoided: float = 0.25
    refill: Nanoseconds = DAY

    def max_rate(self, fleet_size: int) -> int:
        """Return how many machines of a fleet may be taken out within `refill`."""
        if self.fleet_rate is not None:
            return self.fleet_rate
        return max(_MIN_FLEET_RATE, share_to_count(_DEFAULT_FLEET_RATE, fleet_size))


def share_to_count(share: float, size: int) -> int:
    """Return how many machines a share is: at least one, unless the share is nothing."""
    # 0.29 * 100 is a little less than 29.
    return max(1, int(share * size + 1e-9)) if share > 0 else 0


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
    mode: PoolMode = PoolMode.OBSERVE
    control: float = 0.0
    limits: Limits = Limits()
