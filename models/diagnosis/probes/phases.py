"""Phases of a job in which it may stand still without being stuck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Phase"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A span in which no step is made, and nothing is wrong.

    Attributes
    ----------
    kind : str
        `restart` is a moment: it ends all phases that began before it. `pause`: the job stood
        still, nobody wrote down why, and it went on by itself; `repeat`: so it did in this call;
        `absence`: ranks are where the program may have sent them. A
        `first step` that begins and ends at the same time is a moment by which a step had been
        made, however long it took.
    begin : int
        Nanoseconds since 1970 UTC.
    end : int or None
        None while it lasts.
    seen : int or None
        When somebody last saw that it lasts, if that is how it is known: it explains no
        stand-still that began later.
    """

    kind: Literal["first step", "checkpoint", "evaluation", "restart", "pause", "repeat", "absence"]
    begin: int
    end: int | None
    seen: int | None = None
