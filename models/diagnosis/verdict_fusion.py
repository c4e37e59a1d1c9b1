"""The verdict on a job: probes say whether it hangs, findings whom it waits for, lost, or drags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.hang.hang_detection import detect_hang
from forewarn.models.diagnosis.hang.hang_suppression import suppression_reason
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    CulpritCandidate,
    Diagnosis,
    JobFinding,
    Kind,
)
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["fuse_findings"]

_TIE_RATIO = 0.9  # of the first candidate's weight


def fuse_findings(
    findings: Sequence[JobFinding],
    probes: Sequence[Probe],
    phases: Sequence[Phase],
    *,
    ranks: Ranks,
    at: int,
    blind: Sequence[str] = (),
) -> Diagnosis:
    """Join what all parts say to a verdict.

    A crash goes before a hang, a hang before a slow rank, that before jitter; while a job stands
    still and that is no hang yet, nobody is called slow. Weights of the same
    candidate add up over findings; whoever only waits has none. A rank is named if it has 1 or
    more and 0.5 more than the next on another machine.

    Parameters
    ----------
    findings : sequence of Finding
    probes : sequence of Probe
    phases : sequence of Phase
    ranks : Ranks
    at : int
        The moment of the verdict, nanoseconds since 1970 UTC.
    blind : sequence of str
        What cannot be used.
    """
    kind, began, detected = _kind(findings, probes, phases, ranks, at)
    refusal = suppression_reason(findings, phases, probes, ranks, at) if kind == "none" else None
    heard = _relevant_findings(kind if refusal is None else "hang", findings, began)
    votes = [] if any(finding.of_program for finding in heard) else _votes(heard, ranks)
    first = votes[0] if votes and refusal is None and _is_conclusive(votes, ranks) else None
    others = votes if first is None else votes[1:]
    if first is None and votes and refusal is None:
        first = _machine_vote(heard, others, ranks)
    causes = _causes(heard, first) if refusal is None else [refusal]
    return Diagnosis(
        kind=kind,
        rank=None if first is None else first.rank,
        machine=None if first is None else _machine_of_vote(first, ranks),
        also=tuple(vote.candidate(ranks) for vote in others),
        since=_since(heard, first, began),
        detected_at=detected,
        cause="; ".join(causes) or None,
        probes=tuple(probes),
        evidence=tuple(item for finding in heard for item in finding.evidence),
        blind=tuple(blind),
    )


def _kind(
    findings: Sequence[JobFinding],
    probes: Sequence[Probe],
    phases: Sequence[Phase],
    ranks: Ranks,
    at: int,
) -> tuple[Kind, int | None, int | None]:
    """Return what is wrong with the job, since when it stands still, and when that was sure."""
    kinds = {finding.kind for finding in findings}
    if "crash" in kinds:
        return "crash", None, at
    hang = detect_hang(probes, at)
    excuse = suppression_reason(findings, phases, probes, ranks, at)
    if hang is not None:  # who waits makes no steps that could be slow
        return ("hang", *hang) if excuse is None else ("none", hang[0], None)
    lesser: tuple[Kind, ...] = ("slow", "jitter")
    return next(((kind, None, at) for kind in lesser if kind in kinds), ("none", None, None))


def _relevant_findings(
    kind: Kind, findings: Sequence[JobFinding], began: int | None
) -> list[JobFinding]:
    """Return the findings that speak for a verdict; a crash may be the end of a hang.

    Where no rank failed by itself, all have waited, also the one that began it: that a rank ran
    into a time-out says nothing for it then.
    """
    heard = [f for f in findings if f.kind == kind and not f.is_before(began)]
    if kind == "none":
        return []
    supporting = [finding for finding in findings if finding.kind == "none"]
    if kind == "crash" and all(f.after_hang or not f.candidates for f in heard):
        heard = [replace(finding, waiting=frozenset()) for finding in heard]
        heard += [finding for finding in findings if finding.kind == "hang"]
    return heard + supporting


@dataclass(frozen=True, slots=True)
class _Vote:
    """A candidate with all that speaks for it."""

    rank: int | None
    machine: str | None
    weight: float
    reasons: tuple[CulpritCandidate, ...]

    def candidate(self, ranks: Ranks) -> CulpritCandidate:
        whys = "; ".join(dict.fromkeys(reason.why for reason in self.reasons))
        times = [reason.since for reason in self.reasons if reason.since is not None]
        machine = _machine_of_vote(self, ranks)
        return CulpritCandidate(self.rank, whys, self.weight, min(times, default=None), machine)


def _machine_of_vote(vote: _Vote, ranks: Ranks) -> str | None:
    return vote.machine or ranks.machine(vote.rank)


def _votes(findings: Sequence[JobFinding], ranks: Ranks) -> list[_Vote]:
    """Return the candidates, the likeliest first; a machine's reasons are those of its ranks."""
    waiting = {rank for finding in findings for rank in finding.waiting}
    candidates = [candidate for finding in findings for candidate in finding.candidates]
    numbers = {candidate.rank for candidate in candidates} - {None, *waiting}
    of_machine = [candidate for candidate in candidates if candidate.rank is None]
    votes = [
        _vote(rank, ranks.machine(rank), candidates)
        for rank in sorted(number for number in numbers if number is not None)
    ]
    named = {vote.machine for vote in votes}
    for machine in dict.fromkeys(candidate.machine for candidate in of_machine):
        is_idle = machine is not None and waiting.issuperset(ranks.on(machine) or (-1,))
        if machine is not None and machine not in named and not is_idle:
            votes.append(_vote(None, machine, candidates))
    return sorted(votes, key=lambda vote: -vote.weight)


def _vote(rank: int | None, machine: str | None, candidates: Sequence[CulpritCandidate]) -> _Vote:
    reasons = tuple(
        candidate
        for candidate in candidates
        if (candidate.rank is not None and candidate.rank == rank)
        or (candidate.rank is None and machine is not None and candidate.machine == machine)
    )
    return _Vote(rank, machine, sum(reason.weight for reason in reasons), reasons)


def _is_conclusive(votes: Sequence[_Vote], ranks: Ranks) -> bool:
    """Say whether the first candidate is far enough ahead of the next on another machine.

    Where another rank of its machine is accused as much, the machine is to be named, no rank.
    """
    first = votes[0]
    if len(votes) > 1 and votes[1].weight > _TIE_RATIO * first.weight:
        return False
    machine = _machine_of_vote(first, ranks)
    others = [
        vote for vote in votes[1:] if machine is None or _machine_of_vote(vote, ranks) != machine
    ]
    lead = first.weight - max((vote.weight for vote in others), default=0.0)
    return first.weight >= STRONG and lead >= MODERATE


def _machine_vote(
    findings: Sequence[JobFinding], votes: Sequence[_Vote], ranks: Ranks
) -> _Vote | None:
    """Return the machine on which several ranks are accused together, None if that is no name.

    A finding gives a machine what it gives its ranks, at most as much as a name needs.
    """
    alive = {vote.rank for vote in votes}
    weights: dict[str, float] = {}
    reasons: dict[str, list[CulpritCandidate]] = {}
    for finding in findings:
        sums: dict[str, float] = {}
        for candidate in finding.candidates:
            machine = candidate.machine or ranks.machine(candidate.rank)
            if machine is not None and (candidate.rank is None or candidate.rank in alive):
                sums[machine] = sums.get(machine, 0.0) + candidate.weight
                reasons.setdefault(machine, []).append(candidate)
        for machine, weight in sums.items():
            weights[machine] = weights.get(machine, 0.0) + min(STRONG, weight)
    ordered = sorted(weights, key=lambda machine: -weights[machine])
    lead = (
        weights[ordered[0]] - (weights[ordered[1]] if len(ordered) > 1 else 0.0) if ordered else 0
    )
    if not ordered or weights[ordered[0]] < STRONG - 1e-9 or lead < MODERATE:
        return None
    machine = ordered[0]
    return _Vote(None, machine, weights[machine], tuple(reasons[machine]))


def _causes(findings: Sequence[JobFinding], first: _Vote | None) -> list[str]:
    """Return the causes that findings give of whom is named, or of the job if nobody is."""
    causes = []
    for finding in findings:
        leader = finding.candidates[0] if finding.candidates else None
        agrees = first is None or leader in first.reasons
        if finding.cause and (leader is None or agrees):
            causes.append(finding.cause)
    return list(dict.fromkeys(causes))


def _since(findings: Sequence[JobFinding], first: _Vote | None, began: int | None) -> int | None:
    """Return when it began: the earliest time of whom is named, or of any candidate."""
    reasons = (
        [reason for finding in findings for reason in finding.candidates]
        if first is None
        else first.reasons
    )
    return min((reason.since for reason in reasons if reason.since is not None), default=began)
