"""Overrides: a person or another program undid what we did, and wins."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.finding import Severity

__all__ = ["Override"]


@dataclass(frozen=True, slots=True)
class Override:
    """Somebody undid an action, or took it over.

    Attributes
    ----------
    machine, cause : str
        The cause does not act on the machine for some days, unless it becomes graver.
    at : int
        Nanoseconds since 1970 UTC.
    who : str
        Empty if it is not known.
    severity : Severity or None
        Of what was undone. None: whatever comes counts as no graver.
    """

    machine: str
    cause: str
    at: Nanoseconds
    who: str = ""
    severity: Severity | None = None
