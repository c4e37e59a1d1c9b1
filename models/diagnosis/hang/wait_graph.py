"""Wait-for graph of ranks: the origin is a rank that others wait for and that waits for no rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forewarn.features.diagnosis.ranks import format_ranks
from forewarn.models.diagnosis.hang.stall_evidence import stall_evidence
from forewarn.models.diagnosis.hang.stalled_operations import Stall
from forewarn.models.diagnosis.hang.strong_components import strong_components
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    WEAK,
    CulpritCandidate,
    Evidence,
    JobFinding,
)
from forewarn.models.diagnosis.verdict.rank_absence import RankAbsence

__all__ = ["wait_finding"]

_BRANCH_FAULT = Fault("application", "check the program for a branch that depends on the rank")
_ORDER_FAULT = Fault(
    "application",
    "fix the program: ranks that share several groups must call their operations in the same order",
)
_MAX_MISSING_SHARE = 0.25  # of an operation's members


def wait_finding(stalls: Sequence[Stall], n_without_dump: int = 0) -> JobFinding | None:
    """Return the origin of a stall from the operations that do not end.

    A rank waits for the members that have not entered its oldest unfinished operation. If all
    members with a dump have entered it, it waits for those that are still in an earlier one, or
    else for the members without a dump. A rank that all others have left behind in an operation
    waits for none. Candidates are ranks
    that others wait for and that wait for no rank, over any number of hops. In a mismatch the
    candidates are the ranks that do something else. A cycle is a deadlock of the program, unless
    there is also an origin. A rank without a dump is not an origin in that case, because it may be
    part of the cycle. Only ranks that wait for a rank whose own dump proves its absence are
    certainly not the origin.

    Parameters
    ----------
    stalls : sequence of Stall
    n_without_dump : int
        Ranks of the job without a dump. Each of them may be the one that another one waits for.

    Returns
    -------
    JobFinding or None
        None if no operation is unfinished.
    """
    if not stalls:
        return None
    waiting = frozenset(rank for stall in stalls for rank in stall.waiting)
    evidence = tuple(
        stall_evidence(stall) for stall in sorted(stalls, key=lambda stall: stall.since)
    )
    odd = [stall for stall in stalls if stall.is_mismatch]
    if odd:
        return _mismatch_finding(odd, waiting, evidence)
    sinks, circles = _sinks_and_cycles(stalls)
    stuck = _stuck_candidates(stalls)
    missing = frozenset(rank for stall in stalls for rank in stall.absent).intersection(sinks)
    origins = missing | {stall.left_behind for stall in stalls if stall.left_behind in sinks}
    doubt = bool(stuck), n_without_dump
    candidates = _origin_candidates(stalls, sinks, origins, doubt) or stuck
    if circles and not origins:
        return _deadlock_finding(circles, waiting, evidence)
    proven = frozenset(rank for stall in stalls if stall.absent for rank in stall.waiting)
    return JobFinding(
        "hang",
        _cause(candidates, origins),
        candidates,
        proven.difference([candidate.rank for candidate in candidates]),
        evidence,
        origins=frozenset() if _has_common_cause(stalls, missing) else origins,
        is_permanent=any(missing.intersection(stall.halted) for stall in stalls),
        absence=_absence(missing, stalls),
    )


def _cause(candidates: Sequence[CulpritCandidate], origins: frozenset[int]) -> str:
    if len(candidates) == 1:
        (only,) = candidates
        return only.why if only.weight >= STRONG else f"rank {only.rank}: {only.why}"
    return f"{format_ranks(sorted(origins))} have stopped independently" if len(origins) > 1 else ""


def _has_common_cause(stalls: Sequence[Stall], missing: frozenset[int]) -> bool:
    """Return whether so many ranks are missing in one operation that single faults are unlikely."""
    return any(
        len(missing.intersection(stall.absent))
        > max(1, _MAX_MISSING_SHARE * (len(stall.waiting) + len(stall.absent)))
        for stall in stalls
    )


def _absence(missing: frozenset[int], stalls: Sequence[Stall]) -> RankAbsence | None:
    first, last = min(stall.since for stall in stalls), max(stall.last for stall in stalls)
    return RankAbsence(missing, first, last) if missing else None


def _mismatch_finding(
    stalls: Sequence[Stall], waiting: frozenset[int], evidence: tuple[Evidence, ...]
) -> JobFinding:
    """Return the ranks that differ from the majority of a group."""
    odd = dict.fromkeys(rank for stall in stalls for rank in stall.minority_ranks())
    first = min(stalls, key=lambda stall: stall.since)
    why = f"differs from the other ranks in operation {first.seq} of group {first.group}"
    candidates = tuple(
        CulpritCandidate(rank, why, STRONG / len(odd), first.since, fault=_BRANCH_FAULT)
        for rank in odd
    )
    cause = f"a mismatch in group {first.group}: " + " vs. ".join(
        f"{text} ({format_ranks(ranks)})" for text, ranks in first.variants.items()
    )
    rest = waiting - odd.keys()
    return JobFinding(
        "hang",
        cause,
        candidates,
        rest,
        evidence,
        origins=frozenset(odd)
        if all(len(s.minority_ranks()) == 1 for s in stalls)
        else frozenset(),
        is_permanent=True,
        needs_no_duration=True,
    )


def _sinks_and_cycles(stalls: Sequence[Stall]) -> tuple[list[int], list[list[int]]]:
    """Return the ranks that others wait for and that wait for no rank, and the cycles.

    Graph nodes are ranks and operations. A rank points to its operation, and the operation to the
    ranks it waits for, so that a thousand ranks waiting for a thousand need 2,000 edges. Ranks that
    call the same collectives in the same order cannot form a cycle, whatever else they wait for. A
    cycle of sends and receives proves a deadlock only if it waits for no rank outside. A rank that
    is still in an earlier operation proves none, because operations may overlap.
    """
    after: dict[int, list[int]] = {}
    for operation, stall in enumerate(stalls, start=-len(stalls)):  # no rank is negative
        after[operation] = list(stall.blockers)
        for rank in (*stall.waiting, *after[operation]):
            after.setdefault(rank, [])
        for rank in stall.waiting:
            after[rank].append(operation)
    met = {rank for stall in stalls for rank in stall.blockers}
    pairs = {index - len(stalls) for index, stall in enumerate(stalls) if not stall.variants}
    sinks, circles = [], []
    for part in strong_components(after):
        ranks = sorted(met & part)
        is_leaf = all(part.issuperset(after[node]) for node in part)
        if len(ranks) == 1 and is_leaf:
            sinks += ranks
        elif len(ranks) > 1 and (is_leaf or not pairs & part):
            circles.append(ranks)
    if circles and any(stall.behind for stall in stalls):
        circles = _sinks_and_cycles([replace(stall, behind=()) for stall in stalls])[1]
    return sorted(sinks), sorted(circles)


def _origin_candidates(
    stalls: Sequence[Stall],
    sinks: Sequence[int],
    proven: frozenset[int],
    doubt: tuple[bool, int],
) -> tuple[CulpritCandidate, ...]:
    """Return the ranks that others wait for; a rank without a dump is less certain.

    If another operation is stuck although all members have entered it, the operation that waits for
    the rank without a dump may be stuck in the same way. The rank is then only weak evidence.
    `doubt` is whether there is such an operation, and the number of ranks without a dump.
    """
    is_stuck, n_without_dump = doubt
    by_rank: dict[int, list[Stall]] = {rank: [] for rank in sinks}
    for stall in stalls:
        for rank in by_rank.keys() & (stall.blockers):
            by_rank[rank].append(stall)
    silent = {r for r in sinks if all(r not in (*s.absent, *s.behind) for s in by_rank[r])}
    sure = [rank for rank in sinks if rank not in silent]
    unseen = STRONG / max(len(silent), n_without_dump, 1)
    candidates = []
    for rank in (*sure, *sorted(silent)):
        waiters = {waiter for stall in by_rank[rank] for waiter in stall.waiting}
        since = min((stall.since for stall in by_rank[rank]), default=None)
        if rank in silent:
            limit = WEAK if sure or is_stuck else MODERATE if len(waiters) == 1 else STRONG
            weight = min(unseen, limit)  # a single waiter may itself have stopped
        else:
            weight = (STRONG if rank in proven else MODERATE) / len(sure)
        dump = " but left no dump" if rank in silent else ""
        verb = "wait" if len(waiters) > 1 else "waits"
        others = format_ranks(sorted(waiters))
        why = f"{others} {verb} for rank {rank}, which waits for no rank{dump}"
        candidates.append(CulpritCandidate(rank, why, weight, since))
    return tuple(candidates)


def _stuck_candidates(stalls: Sequence[Stall]) -> tuple[CulpritCandidate, ...]:
    """Return the ranks left behind, or the members of operations that all entered and none left."""
    left = {stall.left_behind: stall for stall in stalls if stall.left_behind is not None}
    stuck = [stall for stall in stalls if not stall.blockers and stall.variants] if not left else []
    members = left or {
        rank: stall for stall in stuck for ranks in stall.variants.values() for rank in ranks
    }
    what = "left by all others" if left else "entered by all and left by none"
    weight = min(MODERATE, STRONG / max(len(members), 1))
    return tuple(
        CulpritCandidate(
            rank,
            f"is in operation {stall.seq} of group {stall.group}, {what}",
            weight,
            stall.since,
        )
        for rank, stall in members.items()
    )


def _deadlock_finding(
    circles: Sequence[Sequence[int]], waiting: frozenset[int], evidence: tuple[Evidence, ...]
) -> JobFinding:
    ranks = [rank for circle in circles for rank in circle]
    cause = f"a deadlock of the program: {format_ranks(ranks)} wait for each other in a cycle"
    cause += "; it would recur on other machines"
    return JobFinding(
        "hang",
        cause,
        (),
        waiting,
        evidence,
        is_program_error=True,
        is_permanent=True,
        needs_no_duration=True,
        fault=_ORDER_FAULT,
    )
