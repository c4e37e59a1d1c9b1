"""Time limits of the rungs, and the retry budget of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.state.rung import Rung

__all__ = ["LadderRules"]


@dataclass(frozen=True, slots=True)
class LadderRules:
    """Time limits and the retry budget.

    Attributes
    ----------
    limits : mapping of Rung to int
        Nanoseconds from the begin of a rung until training makes a step; beyond them the rung has
        failed. A rung without one, such as `RESUBMIT`, has all the time.
    retries : int
        Restarts for causes that are unknown, until progress is saved.
    most, within : int
        Upper bound of such restarts within a span of nanoseconds.
    """

    limits: Mapping[Rung, Nanoseconds]
    retries: int = 3
    most: int = 10
    within: Nanoseconds = DAY
