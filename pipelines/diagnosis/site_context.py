"""Sources of a site outside a job's folder: host events, at-risk lists and log patterns."""

from __future__ import annotations

import datetime as dt
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
    """Paths of the site's sources.

    Attributes
    ----------
    events : Path or None
        Folder of records to which `forewarn collect` writes host events.
    at_risk : Path or None
        Lists of `forewarn score`.
    patterns : tuple of Path
        The site's changes of the log knowledge base.
    zone : datetime.tzinfo or None
        Zone of log times that state none; None if it is to be guessed, else UTC.
    """

    events: Path | None = None
    at_risk: Path | None = None
    patterns: tuple[Path, ...] = ()
    zone: dt.tzinfo | None = None

    def parts(self) -> Iterator[tuple[str, Part]]:
        """Yield events and lists as further parts of a job.

        Raises
        ------
        InputError
            If a source cannot be used.
        """
        if self.events is not None:
            yield "events", EventsPart(HostEvents.open(self.events))
        if self.at_risk is not None:
            yield "at_risk", AtRiskPart(Prior.open(self.at_risk))
