"""A probe: one way to look whether a job still moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Probe"]


@dataclass(frozen=True, slots=True)
class Probe:
    """What one way to look says of the job as a whole.

    Attributes
    ----------
    name : str
        `log`, `stack`, `metrics`, `collective` or `kernel`.
    state : str
        `active`: the job moves. `idle`: it does not. `blind`: nothing can be said.
    since : int or None
        When it moved last, nanoseconds since 1970 UTC; None unless `idle`. Probes of the same
        stand-still have about the same.
    why : str
        A sentence for people, with the figure that decided.
    sure : int or None
        When its limit had passed (`since` and 8 minutes for a log); None means `since`.
    """

    name: Literal["log", "stack", "metrics", "collective", "kernel"]
    state: Literal["active", "idle", "blind"]
    since: int | None
    why: str
    sure: int | None = None
