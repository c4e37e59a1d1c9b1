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
    is_late : bool
        It saw no activity at all: the last one was at `since`, its first observation, or before.
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
    is_late: bool = False

    def agrees(self, other: Probe, window: int) -> bool:
        """Return whether two idle probes may have seen the same stall.

        Parameters
        ----------
        other : Probe
            Idle, with a later or equal `since`.
        window : int
            Nanoseconds by which the last activity may differ.

        Examples
        --------
        >>> log, late = Probe("log", "idle", 100, ""), Probe("stack", "idle", 900, "", is_late=True)
        >>> log.agrees(late, 50), log.agrees(Probe("stack", "idle", 900, ""), 50)
        (True, False)
        """
        if self.since is None or other.since is None:
            return False
        return other.is_late or other.since - self.since <= window
