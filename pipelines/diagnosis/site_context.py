"""What a site knows besides the folder of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forewarn.pipelines.diagnosis.parts.hardware_parts import AtRiskPart, EventsPart
from forewarn.pipelines.diagnosis.parts.job_part import Part
from forewarn.pipelines.storage.evidence.at_risk_prior import Prior
from forewarn.pipelines.storage.evidence.host_events import HostEvents

__all__ = ["SiteContext"]


@dataclass(frozen=True, slots=True)
class SiteContext:
    """Where it lies.

    Attributes
    ----------
    events : Path or None
        Folder of records in which `forewarn collect` writes what hosts said.
    at_risk : Path or None
        Lists of `forewarn score`.
    patterns : tuple of Path
        What the site changes of the knowledge base of log lines.
    """

    events: Path | None = None
    at_risk: Path | None = None
    patterns: tuple[Path, ...] = ()

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield records and lists as parts beside those of a folder.

        Raises
        ------
        InputError
            If one cannot be used.
        """
        if self.events is not None:
            yield "events", EventsPart(HostEvents.open(self.events))
        if self.at_risk is not None:
            yield "at_risk", AtRiskPart(Prior.open(self.at_risk))
