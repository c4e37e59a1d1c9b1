"""Blockers: why a step is not taken, and until when."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds

__all__ = ["Blocker"]


@dataclass(frozen=True, slots=True)
class Blocker:
    """Reason why a step is not taken.

    Attributes
    ----------
    reason : str
    until : int or None
        Nanoseconds since 1970 UTC at which it may end by itself. None: it depends on machines.
    """

    reason: str
    until: Nanoseconds | None
