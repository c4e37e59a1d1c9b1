"""What holds something back, and until when."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds

__all__ = ["Blocker"]


@dataclass(frozen=True, slots=True)
class Blocker:
    """Why something is not done.

    Attributes
    ----------
    reason : str
        In words.
    until : int or None
        Nanoseconds since 1970 UTC: when that may change by itself. None: it depends on machines.
    """

    reason: str
    until: Nanoseconds | None
