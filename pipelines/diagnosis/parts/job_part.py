"""What every part of a job's folder has to offer once it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["JobSnapshot", "Part", "PartResult"]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job at a moment.

    Attributes
    ----------
    ranks : Ranks
    at : int
        Nothing later counts; nanoseconds since 1970 UTC.
    parts : mapping of str to Part
        What was read, by name; a part that is absent is not in it.
    """

    ranks: Ranks
    at: int
    parts: Mapping[str, Part]


@dataclass(frozen=True, slots=True)
class PartResult:
    """What a part says of a case.

    Attributes
    ----------
    probe : Probe or None
        None for a part that is none.
    findings : tuple of Finding
    phases : tuple of Phase
        Spans in which standing still is no hang, in any order.
    blind : tuple of str
        What of the part cannot be used and why, such as `logs of rank 3: no times`.
    """

    probe: Probe | None = None
    findings: tuple[JobFinding, ...] = ()
    phases: tuple[Phase, ...] = ()
    blind: tuple[str, ...] = ()


class Part(Protocol):
    """A part of a job's folder, read. It holds all times; `judge` cuts off what is later."""

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks that it mentions."""

    @property
    def last(self) -> int | None:
        """Last time in it, nanoseconds since 1970 UTC; None where it holds no time."""

    def judge(self, case: JobSnapshot) -> PartResult:
        """Say what it shows; the work is done by pure functions in `models/diagnosis`."""
