"""Manual overrides: a manual change undid an action, and takes precedence."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import Finding, Provenance, Severity

__all__ = ["Override"]


@dataclass(frozen=True, slots=True)
class Override:
    """A person or another program undid an action, or replaced it by its own.

    Attributes
    ----------
    machine, cause : str
        The cause does not act on the machine for some days, unless it becomes more severe.
    at : int
        Nanoseconds since 1970 UTC.
    who : str
        Empty if unknown.
    severity : Severity or None
        Severity of the undone action. None: no later finding counts as more severe.
    vouched : Provenance
        `SHARED`: only shared tokens reported the cause; findings of the host itself are not
        affected.
    """

    machine: str
    cause: str
    at: Nanoseconds
    who: str = ""
    severity: Severity | None = None
    vouched: Provenance = Provenance.HOST

    def blocks(self, finding: Finding) -> bool:
        """Tell whether the override concerns this finding, whatever its severity."""
        same = (self.machine, self.cause) == (finding.machine, finding.cause)
        return same and (self.vouched is Provenance.HOST or finding.vouched is Provenance.SHARED)
