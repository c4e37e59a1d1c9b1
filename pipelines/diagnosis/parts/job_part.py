"""Interface of the parts of a job's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.diagnosis.unseen_outputs import UnseenOutput
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.models.diagnosis.verdict.restart_point import RestartPoint

__all__ = ["UNKNOWN_TIME", "JobSnapshot", "Part", "PartResult"]

UNKNOWN_TIME: Final = 2**62  # of a verdict on data without any time: nothing is later


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job at a point in time.

    Attributes
    ----------
    ranks : Ranks
    at : int
        Nanoseconds since 1970 UTC; later data is ignored.
    parts : mapping of str to Part
        Parts that were read, by name.
    is_at_least : bool
        No time was given, and only dumps have times: they were written at `at` or later.
    unseen : tuple of UnseenOutput
        Output that was not collected: its silence says nothing.
    """

    ranks: Ranks
    at: int
    parts: Mapping[str, Part]
    is_at_least: bool = False
    unseen: tuple[UnseenOutput, ...] = ()


@dataclass(frozen=True, slots=True)
class PartResult:
    """Result of evaluating a part.

    Attributes
    ----------
    probe : Probe or None
        None if the part has no probe.
    findings : tuple of JobFinding
    phases : tuple of Phase
        Quiet phases, in any order.
    blind : tuple of str
        Unusable data with reasons, such as `logs 3.log: no timestamps`.
    is_progressing : bool
        Whether the job was seen to make steps until the end of the data, or to succeed.
    unknown_error : str or None
        Line after the last step that looks like an error and matches no pattern.
    known_error : Fault or None
        First error that jobs may survive, where there is neither a finding nor progress.
    restart : RestartPoint or None
    """

    probe: Probe | None = None
    findings: tuple[JobFinding, ...] = ()
    phases: tuple[Phase, ...] = ()
    blind: tuple[str, ...] = ()
    is_progressing: bool = False
    unknown_error: str | None = None
    known_error: Fault | None = None
    restart: RestartPoint | None = None


class Part(Protocol):
    """A part of a job's folder with data of all times; `judge` ignores data after the snapshot."""

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks mentioned in the part."""

    @property
    def last(self) -> int | None:
        """Latest time in the part, in nanoseconds since 1970 UTC; None if it has no times."""

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Evaluate the part with the pure functions in `models/diagnosis`."""
