"""Probe: one check of whether a job makes progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Probe"]


@dataclass(frozen=True, slots=True)
class Probe:
    """Result of one check of the job as a whole.

    Attributes
    ----------
    name : str
        `log`, `stack`, `metrics`, `collective` or `kernel`.
    state : str
        `active`: the job makes progress. `idle`: it does not. `blind`: there is no data.
    since : int or None
        Last activity, in nanoseconds since 1970 UTC; None unless `idle`. Probes of the same stall
        have about the same time.
    why : str
        Explanation with the deciding figure.
    confirmed_at : int or None
        Time at which the limit had passed (for a log, 8 minutes after `since`); None means `since`.
    """

    name: Literal["log", "stack", "metrics", "collective", "kernel"]
    state: Literal["active", "idle", "blind"]
    since: int | None
    why: str
    confirmed_at: int | None = None
