"""Quiet phases: spans in which a job may be stalled without being stuck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Phase"]


@dataclass(frozen=True, slots=True)
class Phase:
    """Span without training steps in which nothing is wrong.

    Attributes
    ----------
    kind : str
        `restart` is a point in time and ends all phases that began before it. `pause`: an unlogged
        pause after which the job resumed. `repeat`: the same for a certain call. `absence`: ranks
        are where the program may have sent them. A `first step` that begins and ends at the same
        time marks a time by which a step had been made.
    begin : int
        Nanoseconds since 1970 UTC.
    end : int or None
        None while it lasts.
    last_seen : int or None
        Last observation of the phase, if it is known only from observations. It does not explain a
        stall that began later.
    """

    kind: Literal["first step", "checkpoint", "evaluation", "restart", "pause", "repeat", "absence"]
    begin: int
    end: int | None
    last_seen: int | None = None
