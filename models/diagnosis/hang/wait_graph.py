"""Wait-for graph of ranks: the origin is a rank that others wait for and that waits for no rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forewarn.features.diagnosis.ranks import format_ranks
from forewarn.models.diagnosis.hang.stalled_operations import Stall
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

_MAX_MISSING_SHARE = 0.25  # of an operation's members


def wait_finding(stalls: Sequence[Stall]) -> JobFinding | None:
    """Return the origin of a stall from the operations that do not end.

    A rank waits for the members that have not entered its oldest unfinished operation. If all
    members with a dump have entered it, it waits for the members without one. Candidates are ranks
    that others wait for and that wait for no rank, over any number of hops. In a mismatch the
    candidates are the ranks that do something else. A cycle is a deadlock of the program, unless
    there is also an origin. A rank without a dump is not an origin in that case, because it may be
    part of the cycle. Only ranks that wait for a rank whose own dump proves its absence are
    certainly not the origin.

    Parameters
    ----------
    stalls : sequence of Stall

    Returns
    -------
    JobFinding or None
        None if no operation is unfinished.
    """
    if not stalls:
        return None
    waiting = frozenset(rank for stall in stalls for rank in stall.waiting)
    evidence = tuple(_evidence(stall) for stall in sorted(stalls, key=lambda stall: stall.since))
    odd = [stall for stall in stalls if stall.is_mismatch]
    if odd:
        return _mismatch_finding(odd, waiting, evidence)
    sinks, circles = _sinks_and_cycles(stalls)
    stuck = _stuck_candidates(stalls)
    candidates = _origin_candidates(stalls, sinks, is_stuck=bool(stuck)) or stuck
    absent = frozenset(rank for stall in stalls for rank in stall.absent)
    if circles and not absent.intersection(sinks):
        return _deadlock_finding(circles, waiting, evidence)
    cause = candidates[0].why if len(candidates) == 1 else ""
    proven = frozenset(rank for stall in stalls if stall.absent for rank in stall.waiting)
    rest = proven.difference([candidate.rank for candidate in candidates])
    missing = absent.intersection(sinks)
    return JobFinding(
        "hang",
        cause,
        candidates,
        rest,
        evidence,
        origins=_independent_origins(stalls, missing),
        is_permanent=any(missing.intersection(stall.halted) for stall in stalls),
        absence=_absence(missing, stalls),
    )


def _independent_origins(stalls: Sequence[Stall], missing: frozenset[int]) -> frozenset[int]:
    """Return the missing ranks; empty if many are missing in one operation: a common cause."""
    for stall in stalls:
        n_members = len(stall.waiting) + len(stall.absent)
        n_missing = len(missing.intersection(stall.absent))
        if n_missing > max(1, _MAX_MISSING_SHARE * n_members):
            return frozenset()
    return missing


def _absence(missing: frozenset[int], stalls: Sequence[Stall]) -> RankAbsence | None:
    first, last = min(stall.since for stall in stalls), max(stall.last for stall in stalls)
    return RankAbsence(missing, first, last) if missing else None


def _evidence(stall: Stall) -> Evidence:
    """Describe which ranks wait for which in one operation."""
    if stall.is_mismatch:
        parts = "; ".join(
            f"{format_ranks(ranks)}: {text}" for text, ranks in stall.variants.items()
        )
        says = f"operation {stall.seq} of group {stall.group} differs: {parts}"
    else:
        blocking = stall.absent or stall.silent
        blockers = format_ranks(blocking) if blocking else "no rank (all have entered)"
        no_dump = " (no dump)" if not stall.absent and stall.silent else ""
        waiters = format_ranks(stall.waiting) if stall.waiting else "no rank"
        verb = "waits" if len(stall.waiting) < 2 else "wait"
        says = (
            f"{waiters} {verb} for {blockers}{no_dump} in {stall.operation}, operation "
            f"{stall.seq} of group {stall.group}"
        )
    details = {
        "group": stall.group,
        "seq": stall.seq,
        "operation": stall.operation,
        "waiting": list(stall.waiting),
        "absent": list(stall.absent),
        "silent": list(stall.silent),
        "variants": {text: list(ranks) for text, ranks in stall.variants.items()},
    }
    return Evidence("flight", says, time=stall.since, details=details)


def _mismatch_finding(
    stalls: Sequence[Stall], waiting: frozenset[int], evidence: tuple[Evidence, ...]
) -> JobFinding:
    """Return the ranks that differ from the majority of a group."""
    odd = dict.fromkeys(rank for stall in stalls for rank in stall.minority_ranks())
    first = min(stalls, key=lambda stall: stall.since)
    why = f"differs from the other ranks in operation {first.seq} of group {first.group}"
    candidates = tuple(CulpritCandidate(rank, why, STRONG / len(odd), first.since) for rank in odd)
    cause = f"a mismatch in group {first.group}: " + " vs. ".join(
        f"{text} ({format_ranks(ranks)})" for text, ranks in first.variants.items()
    )
    rest = waiting - odd.keys()
    return JobFinding("hang", cause, candidates, rest, evidence, is_permanent=True)


def _sinks_and_cycles(stalls: Sequence[Stall]) -> tuple[list[int], list[list[int]]]:
    """Return the ranks that others wait for and that wait for no rank, and the cycles.

    Graph nodes are ranks and operations. A rank points to its operation, and the operation to the
    ranks it waits for, so that a thousand ranks waiting for a thousand need 2,000 edges. Ranks that
    call the same collectives in the same order cannot form a cycle, whatever else they wait for. A
    cycle of sends and receives proves a deadlock only if it waits for no rank outside.
    """
    after: dict[int, list[int]] = {}
    for operation, stall in enumerate(stalls, start=-len(stalls)):  # no rank is negative
        after[operation] = list(stall.absent or stall.silent)
        for rank in (*stall.waiting, *after[operation]):
            after.setdefault(rank, [])
        for rank in stall.waiting:
            after[rank].append(operation)
    met = {rank for stall in stalls for rank in stall.absent or stall.silent}
    pairs = {index - len(stalls) for index, stall in enumerate(stalls) if not stall.variants}
    sinks, circles = [], []
    for part in _strongly_connected_components(after):
        ranks = sorted(met & part)
        is_leaf = all(part.issuperset(after[node]) for node in part)
        if len(ranks) == 1 and is_leaf:
            sinks += ranks
        elif len(ranks) > 1 and (is_leaf or not pairs & part):
            circles.append(ranks)
    return sorted(sinks), sorted(circles)


def _strongly_connected_components(after: Mapping[int, Sequence[int]]) -> list[set[int]]:
    """Return the strongly connected components of a graph (Kosaraju's algorithm)."""
    before: dict[int, list[int]] = {node: [] for node in after}
    for node, following in after.items():
        for target in following:
            before[target].append(node)
    seen: set[int] = set()
    order = [node for start in after for node in _depth_first(after, start, seen)]
    seen = set()
    parts = (set(_depth_first(before, start, seen)) for start in reversed(order))
    return [part for part in parts if part]


def _depth_first(after: Mapping[int, Sequence[int]], start: int, seen: set[int]) -> list[int]:
    """Return the nodes reachable from `start` and not in `seen`, in post-order; extend `seen`."""
    order: list[int] = []
    path = [(start, iter((start,)))]
    while path:
        node, following = path[-1]
        if (target := next((n for n in following if n not in seen), None)) is not None:
            seen.add(target)
            path.append((target, iter(after[target])))
        elif path.pop() and path:
            order.append(node)
    return order


def _origin_candidates(
    stalls: Sequence[Stall], sinks: Sequence[int], *, is_stuck: bool
) -> tuple[CulpritCandidate, ...]:
    """Return the ranks that others wait for; a rank without a dump is less certain.

    If another operation is stuck although all members have entered it, the operation that waits for
    the rank without a dump may be stuck in the same way. The rank is then only weak evidence.
    """
    by_rank: dict[int, list[Stall]] = {rank: [] for rank in sinks}
    for stall in stalls:
        for rank in by_rank.keys() & (stall.absent or stall.silent):
            by_rank[rank].append(stall)
    silent = {rank for rank in sinks if all(rank in stall.silent for stall in by_rank[rank])}
    sure = [rank for rank in sinks if rank not in silent]
    candidates = []
    for rank in (*sure, *sorted(silent)):
        waiters = {waiter for stall in by_rank[rank] for waiter in stall.waiting}
        since = min((stall.since for stall in by_rank[rank]), default=None)
        is_doubtful = bool(sure) or is_stuck
        weight = STRONG / len(sure) if rank in sure else _weight_without_dump(silent, is_doubtful)
        dump = " but left no dump" if rank in silent else ""
        why = f"{format_ranks(sorted(waiters))} waits for it, and it waits for no rank{dump}"
        if len(waiters) > 1:
            why = why.replace("waits for it", "wait for it", 1)
        candidates.append(CulpritCandidate(rank, why, weight, since))
    return tuple(candidates)


def _weight_without_dump(silent: set[int], is_doubtful: bool) -> float:
    """Return the weight of a rank without a dump, which may itself wait for a rank."""
    return WEAK if is_doubtful else STRONG / len(silent)


def _stuck_candidates(stalls: Sequence[Stall]) -> tuple[CulpritCandidate, ...]:
    """Return the members of operations that all have entered and that do not end."""
    stuck = [s for s in stalls if not (s.absent or s.silent or s.is_mismatch) and s.variants]
    members = dict.fromkeys(
        rank for stall in stuck for ranks in stall.variants.values() for rank in ranks
    )
    first = min(stuck, key=lambda stall: stall.since, default=None)
    if first is None:
        return ()
    why = f"is in operation {first.seq} of group {first.group}, entered by all and left by none"
    weight = min(MODERATE, STRONG / len(members))
    return tuple(CulpritCandidate(rank, why, weight, first.since) for rank in members)


def _deadlock_finding(
    circles: Sequence[Sequence[int]], waiting: frozenset[int], evidence: tuple[Evidence, ...]
) -> JobFinding:
    ranks = [rank for circle in circles for rank in circle]
    cause = f"a deadlock of the program: {format_ranks(ranks)} wait for each other in a cycle"
    cause += "; it would recur on other machines"
    return JobFinding(
        "hang", cause, (), waiting, evidence, is_program_error=True, is_permanent=True
    )
