"""What a cause-finder comes to, and what all of them together do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.models.diagnosis.verdict.rank_absence import RankAbsence

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

Kind = Literal["hang", "slow", "jitter", "crash", "none"]

# Weights of a candidate. Those of all findings add up, and 1 is needed for a name.
STRONG, MODERATE, WEAK = 1.0, 0.5, 0.25


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something that was seen and speaks for the verdict.

    Attributes
    ----------
    part : str
        Part of the job's folder: `logs`, `flight`, `stacks`, `metrics`, `kernel`, `profiles`,
        `exits`, `events`, `at_risk`.
    says : str
        A sentence for people, with figures and units.
    rank : int or None
        Whom it is about; None if no single rank.
    time : int or None
        When, nanoseconds since 1970 UTC; None where nobody knows.
    details : mapping
        Further values for programs: text, numbers, lists of them.
    """

    part: str
    says: str
    rank: int | None = None
    time: int | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CulpritCandidate:
    """Who may have begun it.

    Attributes
    ----------
    rank : int or None
        None: the machine as a whole.
    why : str
        A sentence for people.
    weight : float
        `STRONG`: this finding is enough for a name. `MODERATE`: another one has to agree. `WEAK`: a
        hint. A finding counts once for each candidate, and those of different findings add up.
    since : int or None
        Nanoseconds since 1970 UTC.
    machine : str or None
        Needed only where `rank` is None; otherwise the table of ranks says it.
    """

    rank: int | None
    why: str
    weight: float
    since: int | None = None
    machine: str | None = None


@dataclass(frozen=True, slots=True)
class JobFinding:
    """What one cause-finder came to.

    Attributes
    ----------
    kind : str
        What it speaks for. Findings of a hang count only where the probes agree that the job hangs.
        `none`: for whatever else is wrong, such as an Xid; by itself it is no verdict.
    cause : str
        In words, of the first candidate or, where it has none, of the job ("a deadlock of the
        program"); empty where it knows none.
    candidates : tuple of Candidate
        The likeliest first.
    waiting : frozenset of int
        Ranks that only wait for others, by this finding: they began nothing.
    evidence : tuple of Evidence
    of_program : bool
        It is a mistake of the program: no machine is to be named, whatever else speaks for one.
    after_hang : bool
        Of a crash: no rank failed by itself, they waited until a time-out or were asked to end. Who
        began the stand-still before it is told by what was saved of that.
    cannot_end : bool
        What it saw does not end by itself, such as a deadlock: no pause looks so.
    absence : Absence or None
        Who has not come where others wait; None where nobody knows.
    taken : int or None
        When somebody looked, if that was a single moment: what was before a hang tells nothing of
        it. Nanoseconds since 1970 UTC.
    """

    kind: Kind
    cause: str
    candidates: tuple[CulpritCandidate, ...] = ()
    waiting: frozenset[int] = frozenset()
    evidence: tuple[Evidence, ...] = ()
    of_program: bool = False
    after_hang: bool = False
    cannot_end: bool = False
    absence: RankAbsence | None = None
    taken: int | None = None

    def is_before(self, began: int | None) -> bool:
        """Say whether somebody looked before a stand-still began: it tells nothing of that."""
        return self.taken is not None and began is not None and self.taken < began


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict on a job (formats.md, section 10).

    Attributes
    ----------
    kind : str
    rank, machine : int and str, or None
        None: nobody is named.
    also : tuple of Candidate
        Further candidates, the likeliest first; all of them where nobody is named.
    since, detected_at : int or None
        When it began, and from when on it was sure; nanoseconds since 1970 UTC.
    cause : str or None
    probes : tuple of Probe
    evidence : tuple of Evidence
    blind : tuple of str
        Parts of which nothing can be said.
    """

    kind: Kind
    rank: int | None
    machine: str | None
    also: tuple[CulpritCandidate, ...]
    since: int | None
    detected_at: int | None
    cause: str | None
    probes: tuple[Probe, ...]
    evidence: tuple[Evidence, ...]
    blind: tuple[str, ...]
