"""Pools of machines, and the limits of actions on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.state.site_step import SiteStep
from forewarn.response.state.step import Step

__all__ = ["Limits", "Pool", "PoolMode", "share_to_count"]

_DEFAULT_FLEET_RATE: Final = 0.01
_MIN_FLEET_RATE: Final = 2


class PoolMode(StrEnum):
    """Whether forewarn only observes, proposes to a person, or acts."""

    OBSERVE = "observe"
    PROPOSE = "propose"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on machines out of service before forewarn drains one more.

    Attributes
    ----------
    machines : int or None
        Machines of the pool, whatever the reason they are out; None for no such limit.
    share : float
        Share of the pool's GPU machines that forewarn has out without certain damage. If the share
        is less than one machine, one may be out.
    rack : int
        The same count within one rack.
    job, cause : int
        Machines under one job; machines that forewarn drained for one cause within `refill`.
    fleet_rate : int or None
        Machines that forewarn drained in the whole fleet within `refill`; half of them, rounded
        down, for predictions. None: 1 % of its GPU machines, and at least 2.
    killed_jobs : int
        Jobs that forewarn ends within `refill`: drains `now`, and deadlines that are reached.
    avoided : float
        Share of the pool's GPU machines that new jobs are told to avoid, at least one machine.
    refill : int
        Nanoseconds after which an action no longer counts against the rates.
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
        """Return how many machines of a fleet may be drained within `refill`."""
        if self.fleet_rate is not None:
            return self.fleet_rate
        return max(_MIN_FLEET_RATE, share_to_count(_DEFAULT_FLEET_RATE, fleet_size))


def share_to_count(share: float, size: int) -> int:
    """Return the number of machines in a share: at least one, unless the share is 0."""
    # 0.29 * 100 is slightly less than 29.
    return max(1, int(share * size + 1e-9)) if share > 0 else 0


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines of one owner.

    Attributes
    ----------
    name : str
    mode : PoolMode
    control : float
        Holdout: share of drains by prediction alone that are not carried out, to measure precision.
    limits : Limits
    steps : mapping of Step to SiteStep
        Commands of the steps that the loop carries out; a person carries out the others.
    replaces : bool
        Whether `replace` is carried out without approval.
    needs_spare : bool
        Whether a drain without a spare needs approval.
    """

    name: str
    mode: PoolMode = PoolMode.OBSERVE
    control: float = 0.0
    limits: Limits = Limits()
    steps: Mapping[Step, SiteStep] = field(default_factory=dict)
    replaces: bool = False
    needs_spare: bool = False
