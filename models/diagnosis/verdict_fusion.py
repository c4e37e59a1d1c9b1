"""Verdict fusion: combines the results of all parts of a job's folder into one verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.evidence_kind import EvidenceKind
from forewarn.models.diagnosis.hang.hang_detection import detect_hang
from forewarn.models.diagnosis.hang.hang_suppression import suppression_reason
from forewarn.models.diagnosis.probes.phases import Phase
from forewarn.models.diagnosis.verdict.evidence_kinds import evidence_kinds
from forewarn.models.diagnosis.verdict.fault import Fault
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

_TIE_RATIO = 0.9
_TEXTS = {EvidenceKind.LOG, EvidenceKind.EXIT_CODE}  # what processes and launchers wrote
_MACHINE_SCOPES = ("node", "fabric", "storage")
_MAX_FAULTS = 3  # on different machines; more at the same time have a common cause


def fuse_findings(
    findings: Sequence[JobFinding],
    probes: Sequence[Probe],
    phases: Sequence[Phase],
    *,
    ranks: Ranks,
    at: int,
    blind: Sequence[str] = (),
) -> Diagnosis:
    """Combine findings, probes and phases into a verdict.

    A crash takes precedence over a hang, a hang over a slow rank, and a slow rank over jitter.
    While a job is stalled but not yet classified as a hang, no rank is reported as slow. Weights of
    a candidate add up over findings; ranks that only wait have none. A culprit needs a weight of 1
    and a lead of 0.5 over the next candidate on another machine. Several ranks are culprits if each
    is an origin by evidence of its own.

    Parameters
    ----------
    findings : sequence of JobFinding
    probes : sequence of Probe
    phases : sequence of Phase
    ranks : Ranks
    at : int
        Time of the verdict, in nanoseconds since 1970 UTC.
    blind : sequence of str
        Parts that cannot be used.
    """
    kind, began, detected = _kind(findings, probes, phases, ranks, at)
    reason = suppression_reason(findings, phases, probes, ranks, at) if kind == "none" else None
    relevant = _relevant_findings(kind if reason is None else "hang", findings, began, detected)
    votes = [] if any(finding.is_program_error for finding in relevant) else _votes(relevant, ranks)
    is_certain = reason is None and kind != "unknown"
    culprits = _culprit_votes(relevant, votes, ranks) if is_certain else []
    culprits = [vote for vote in culprits if not _is_whole_job(vote, relevant, ranks)]
    first = culprits[0] if len(culprits) == 1 else None
    causes = _causes(relevant, culprits) if reason is None else [reason]
    if kind == "unknown":
        causes = [probe.why for probe in probes]
    return Diagnosis(
        kind=kind,
        rank=None if first is None else first.rank,
        machine=None if first is None else _machine_of_vote(first, ranks),
        culprits=tuple(vote.candidate(ranks) for vote in culprits),
        also=tuple(vote.candidate(ranks) for vote in votes if vote not in culprits),
        since=None if kind == "unknown" else _since(relevant, first, began),
        detected_at=detected,
        cause="; ".join(causes) or None,
        probes=tuple(probes),
        evidence=tuple(item for finding in relevant for item in finding.evidence),
        evidence_from=evidence_kinds(relevant, [why for vote in culprits for why in vote.reasons]),
        blind=tuple(blind),
        fault=None if culprits else next((f.fault for f in relevant if f.fault is not None), None),
    )


def _kind(
    findings: Sequence[JobFinding],
    probes: Sequence[Probe],
    phases: Sequence[Phase],
    ranks: Ranks,
    at: int,
) -> tuple[Kind, int | None, int | None]:
    """Return the kind of problem, the start of the stall, and when it was confirmed."""
    kinds = {finding.kind for finding in findings}
    if "ended" in kinds:
        return "ended", None, at
    hang = detect_hang(probes, at)
    crashes = [finding for finding in findings if finding.kind == "crash"]
    if crashes and (hang is None or not all(crash.is_hearsay for crash in crashes)):
        return "crash", None, at
    reason = suppression_reason(findings, phases, probes, ranks, at)
    if hang is not None:  # a waiting rank makes no steps that could be slow
        return ("hang", *hang) if reason is None else ("none", hang[0], None)
    lesser: tuple[Kind, ...] = ("slow", "jitter")
    for kind in lesser:
        if kind in kinds:
            return kind, None, at
    is_unseen = bool(probes) and all(p.state == "blind" and p.name != "log" for p in probes)
    is_moving = any(p.state == "active" and p.name != "log" for p in probes)
    if not is_moving and any(f.needs_no_duration and f.kind == "hang" for f in findings):
        return "hang", None, at
    return "unknown" if is_unseen else "none", None, None


def _relevant_findings(
    kind: Kind, findings: Sequence[JobFinding], began: int | None, detected: int | None
) -> list[JobFinding]:
    """Return the findings that support a verdict; a crash may be the end of a hang.

    If no rank failed on its own, all ranks have waited, including the origin of the hang. A rank
    that ran into a time-out is then not exonerated by it.
    """
    if kind == "none":
        return [finding for finding in findings if finding.is_completed]
    shown = "hang" if kind == "unknown" else kind
    relevant = [f.as_of(detected) for f in findings if f.kind == shown and not f.is_before(began)]
    supporting = [finding for finding in findings if finding.kind == "none"]
    if kind == "crash" and all(f.after_hang or not f.candidates for f in relevant):
        relevant = [replace(finding, waiting=frozenset()) for finding in relevant]
        relevant += [finding for finding in findings if finding.kind == "hang"]
    return relevant + supporting


@dataclass(frozen=True, slots=True)
class _Vote:
    """A candidate with all findings that support it."""

    rank: int | None
    machine: str | None
    weight: float
    reasons: tuple[CulpritCandidate, ...]

    def candidate(self, ranks: Ranks) -> CulpritCandidate:
        whys = "; ".join(dict.fromkeys(reason.why for reason in self.reasons))
        times = [reason.since for reason in self.reasons if reason.since is not None]
        machine = _machine_of_vote(self, ranks)
        since = min(times, default=None)
        return CulpritCandidate(self.rank, whys, self.weight, since, machine, self._fault())

    def _fault(self) -> Fault | None:
        """Return a fault of the machine if there is one: the program's error may follow from it."""
        reasons = sorted(self.reasons, key=lambda reason: -reason.weight)
        faults = [reason.fault for reason in reasons if reason.fault is not None]
        return next((fault for fault in faults if fault.needs_repair), next(iter(faults), None))


def _machine_of_vote(vote: _Vote, ranks: Ranks) -> str | None:
    return vote.machine or ranks.machine(vote.rank)


def _votes(findings: Sequence[JobFinding], ranks: Ranks) -> list[_Vote]:
    """Return the candidates, most likely first; findings on a machine count for its ranks."""
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


def _culprit_votes(
    findings: Sequence[JobFinding], votes: Sequence[_Vote], ranks: Ranks
) -> list[_Vote]:
    """Return the culprit, or all origins if there are several; empty if none is identified."""
    if not votes:
        return []
    if _is_conclusive(votes, ranks):
        return [votes[0]]
    origins = _independent_origins(findings, votes, ranks)
    machine = _machine_vote(findings, votes, ranks)
    return origins if origins or machine is None else [machine]


def _is_whole_job(vote: _Vote, findings: Sequence[JobFinding], ranks: Ranks) -> bool:
    """Return whether a machine is named by texts only, and is the only machine of the job.

    All errors of such a job are on that machine. They tell its fault only if they state one of the
    machine, or something looked at the machine itself, such as a kernel log. An error on a GPU may
    be the program's.
    """
    machines = {row.machine for row in ranks.table.values()}
    is_only = vote.rank is None and len(ranks.table) > 1 and machines == {vote.machine}
    faults = [reason.fault for reason in vote.reasons if reason.fault is not None]
    if any(fault.needs_repair or fault.scope in _MACHINE_SCOPES for fault in faults):
        return False
    return is_only and set(evidence_kinds(findings, vote.reasons)) <= _TEXTS


def _independent_origins(
    findings: Sequence[JobFinding], votes: Sequence[_Vote], ranks: Ranks
) -> list[_Vote]:
    """Return the origins that are proven independently of each other, if they are few."""
    proven = {rank for finding in findings for rank in finding.origins}
    origins = [vote for vote in votes if vote.rank in proven]
    machines = {_machine_of_vote(vote, ranks) for vote in origins}
    if len(origins) != len(proven) or len(machines - {None}) == len(machines) == 1:
        return []  # one machine is named instead of its ranks
    unplaced = {vote.rank for vote in origins if _machine_of_vote(vote, ranks) is None} - {None}
    starts = [rank for rank in unplaced if rank is not None and rank - 1 not in unplaced]
    n_places = len(machines - {None}) + len(starts)  # launchers number ranks by machine
    return origins if len(origins) > 1 and n_places <= _MAX_FAULTS else []


def _is_conclusive(votes: Sequence[_Vote], ranks: Ranks) -> bool:
    """Return whether the first candidate leads the next one on another machine by enough.

    If another rank of its machine has nearly the same weight, the culprit is the machine.
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
    """Return the machine whose ranks together are the culprit, or None.

    A finding counts for a machine as for its ranks, up to the weight of strong evidence, and up to
    twice that of the strongest candidate: many hints do not suffice. What looked at the processes
    themselves may accuse all ranks of one machine and no other: that is no mere sum of hints.
    """
    alive = {vote.rank for vote in votes}
    weights: dict[str, float] = {}
    reasons: dict[str, list[CulpritCandidate]] = {}
    for finding in findings:
        sums: dict[str, float] = {}
        strongest: dict[str, float] = {}
        for candidate in finding.candidates:
            machine = candidate.machine or ranks.machine(candidate.rank)
            if machine is not None and (candidate.rank is None or candidate.rank in alive):
                sums[machine] = sums.get(machine, 0.0) + candidate.weight
                strongest[machine] = max(strongest.get(machine, 0.0), candidate.weight)
                reasons.setdefault(machine, []).append(candidate)
        for machine, weight in sums.items():
            most = min(STRONG, 2 * strongest[machine])
            if _accuses_whole(finding, machine, ranks):
                most = STRONG
            weights[machine] = weights.get(machine, 0.0) + min(most, weight)
    ordered = sorted(weights, key=lambda machine: -weights[machine])
    lead = (
        weights[ordered[0]] - (weights[ordered[1]] if len(ordered) > 1 else 0.0) if ordered else 0
    )
    if not ordered or weights[ordered[0]] < STRONG - 1e-9 or lead < MODERATE:
        return None
    machine = ordered[0]
    return _Vote(None, machine, weights[machine], tuple(reasons[machine]))


def _accuses_whole(finding: JobFinding, machine: str, ranks: Ranks) -> bool:
    """Return whether a finding, not of texts, accuses all ranks of a machine and no other."""
    accused = {candidate.rank for candidate in finding.candidates}
    is_seen = not set(evidence_kinds([finding], ())) <= _TEXTS
    is_part = 1 < len(accused) < len(ranks.table)  # all ranks of a job are no choice of a machine
    return is_seen and is_part and accused == set(ranks.on(machine))


def _causes(findings: Sequence[JobFinding], culprits: Sequence[_Vote]) -> list[str]:
    """Return the causes of the findings that support a culprit, or of the job without one."""
    causes = []
    for finding in findings:
        leader = finding.candidates[0] if finding.candidates else None
        agrees = not culprits or any(leader in culprit.reasons for culprit in culprits)
        if finding.cause and (leader is None or agrees):
            causes.append(finding.cause)
    return list(dict.fromkeys(causes))


def _since(findings: Sequence[JobFinding], first: _Vote | None, began: int | None) -> int | None:
    """Return the earliest time in the findings on the culprit, or on any candidate without one."""
    reasons = (
        [reason for finding in findings for reason in finding.candidates]
        if first is None
        else first.reasons
    )
    return min((reason.since for reason in reasons if reason.since is not None), default=began)
