"""Overrides: a person or another program undid what we did, and wins."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import Finding, Provenance, Severity

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
    vouched : Voucher
        `SHARED`: only shared tokens spoke of the cause, and what a machine reports of itself is
        something else.
    """

    machine: str
    cause: str
    at: Nanoseconds
    who: str = ""
    severity: Severity | None = None
    vouched: Provenance = Provenance.HOST

    def blocks(self, finding: Finding) -> bool:
        """Tell whether it is about what a finding says, however grave that is."""
        same = (self.machine, self.cause) == (finding.machine, finding.cause)
        return same and (self.vouched is Provenance.HOST or finding.vouched is Provenance.SHARED)
