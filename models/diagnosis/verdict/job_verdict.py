"""Findings of the diagnosis of a job, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.models.diagnosis.verdict.rank_absence import RankAbsence
from forewarn.models.diagnosis.verdict.restart_point import RestartPoint

__all__ = [
    "MODERATE",
    "STRONG",
    "WEAK",
    "CulpritCandidate",
    "Diagnosis",
    "Evidence",
    "JobFinding",
    "Kind",
]

Kind = Literal["hang", "slow", "jitter", "crash", "ended", "unknown", "none"]

# Weights of a candidate. They add up over all findings; a culprit needs a total of 1.
STRONG, MODERATE, WEAK = 1.0, 0.5, 0.25


@dataclass(frozen=True, slots=True)
class Evidence:
    """Observation that supports a verdict.

    Attributes
    ----------
    part : str
        Part of the job's folder: `logs`, `flight`, `stacks`, `metrics`, `kernel`, `profiles`,
        `exits`, `events`, `at_risk`, `ras`, `inspector`, `xpu_timer`.
    says : str
        Description with figures and units.
    rank : int or None
        The rank concerned; None if it is not a single rank.
    time : int or None
        Nanoseconds since 1970 UTC; None if unknown.
    details : mapping
        Further values for programs: strings, numbers, and lists of them.
    """

    part: str
    says: str
    rank: int | None = None
    time: int | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CulpritCandidate:
    """Possible culprit of one finding.

    Attributes
    ----------
    rank : int or None
        None for the machine as a whole.
    why : str
        Explanation.
    weight : float
        `STRONG`: this finding suffices to identify the culprit. `MODERATE`: another finding must
        agree. `WEAK`: a hint. Weights of different findings add up.
    since : int or None
        Nanoseconds since 1970 UTC.
    machine : str or None
        Needed only if `rank` is None; otherwise the table of ranks provides it.
    fault : Fault or None
        None if the finding does not say why.
    """

    rank: int | None
    why: str
    weight: float
    since: int | None = None
    machine: str | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class JobFinding:
    """Result of one cause finder.

    Attributes
    ----------
    kind : str
        Kind of problem that it supports. Findings of a hang count only if the probes agree on a
        hang. `none`: supports any kind, such as an Xid, but is not a verdict by itself.
    cause : str
        Cause of the first candidate or, without candidates, of the job ("a deadlock of the
        program"); empty if unknown.
    candidates : tuple of CulpritCandidate
        Most likely first.
    waiting : frozenset of int
        Ranks that only wait for others and are therefore not the origin.
    evidence : tuple of Evidence
    origins : frozenset of int
        Candidates of which each is an origin by evidence of its own: if there are several, all of
        them are. The others are candidates for one origin.
    is_program_error : bool
        The program is at fault: no machine is a culprit, whatever other findings say.
    after_hang : bool
        For a crash: no rank failed on its own; all waited until a time-out or ended on request. The
        origin is then found from the data saved during the hang.
    is_hearsay : bool
        For a crash: no rank, exit code, launcher or device says that a rank failed, only lines that
        belong to no rank do. Ranks that are seen to hang have not crashed then.
    is_permanent : bool
        The observed condition is permanent, such as a deadlock; it is not a pause.
    needs_no_duration : bool
        The condition is wrong however short it has lasted, such as a mismatch of operations.
    is_completed : bool
        The training ended as planned.
    absence : RankAbsence or None
        Ranks that have not entered an operation that others wait in; None if unknown.
    is_only_outsider : bool
        The candidate is the only rank that does not wait for others but for its own host. This is
        strong evidence if it was observed when the stall was already confirmed.
    observed_at : int or None
        Time of a single observation, in nanoseconds since 1970 UTC. An observation before a hang
        says nothing about it.
    fault : Fault or None
        Fault of the job as a whole, where no candidate has one.
    """

    kind: Kind
    cause: str
    candidates: tuple[CulpritCandidate, ...] = ()
    waiting: frozenset[int] = frozenset()
    evidence: tuple[Evidence, ...] = ()
    origins: frozenset[int] = frozenset()
    is_program_error: bool = False
    after_hang: bool = False
    is_hearsay: bool = False
    is_permanent: bool = False
    needs_no_duration: bool = False
    is_completed: bool = False
    absence: RankAbsence | None = None
    is_only_outsider: bool = False
    observed_at: int | None = None
    fault: Fault | None = None

    def as_of(self, confirmed: int | None) -> JobFinding:
        """Return the finding with the weights that it has once a stall was confirmed."""
        if confirmed is None or self.observed_at is None or self.observed_at < confirmed:
            return self
        if not self.is_only_outsider:
            return self
        return replace(self, candidates=tuple(replace(c, weight=STRONG) for c in self.candidates))

    def is_before(self, began: int | None) -> bool:
        """Return whether the observation was made before a stall began."""
        return self.observed_at is not None and began is not None and self.observed_at < began


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Verdict on a job (docs/formats.md, section 10).

    Attributes
    ----------
    kind : str
    rank, machine : int and str, or None
        Culprit; None if no culprit was identified, or several.
    culprits : tuple of CulpritCandidate
        The independent origins: one if `rank` or `machine` is known, none without a culprit.
    also : tuple of CulpritCandidate
        Further candidates, most likely first; without a culprit, all of them.
    since, detected_at : int or None
        Start of the problem, and when it was confirmed, in nanoseconds since 1970 UTC.
    cause : str or None
    probes : tuple of Probe
    evidence : tuple of Evidence
    evidence_from : tuple of EvidenceKind
        What accuses the culprits.
    blind : tuple of str
        Parts without usable data.
    fault : Fault or None
        Fault of the job as a whole, if no culprit was identified.
    restart : RestartPoint or None
        None if the logs show no step.
    """

    kind: Kind
    rank: int | None
    machine: str | None
    culprits: tuple[CulpritCandidate, ...]
    also: tuple[CulpritCandidate, ...]
    since: int | None
    detected_at: int | None
    cause: str | None
    probes: tuple[Probe, ...]
    evidence: tuple[Evidence, ...]
    evidence_from: tuple[EvidenceKind, ...]
    blind: tuple[str, ...]
    fault: Fault | None = None
    restart: RestartPoint | None = None
