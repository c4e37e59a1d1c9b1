"""Outlier stacks while all ranks wait: one in another collective, or one machine on its GPUs.

Without a flight recorder, stacks are the only evidence of a missing rank. Ranks that run the same
program are in the same call, and whatever blocks a collective blocks all of its members alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from forewarn.features.diagnosis.ranks import Ranks, format_ranks
from forewarn.features.diagnosis.stack_sample import Stack, classify_wait
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import (
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["find_outlier_stacks"]

_MIN_OTHERS = 3
_BRANCH_FAULT = Fault("application", "check the program for a branch that depends on the rank")
_DEVICE_FAULT = Fault(
    "gpu", "check its kernel log for GPU errors, and reset its GPUs", needs_repair=True
)
_LEADER_RANK = 0  # measures, logs and broadcasts for all, so that it differs in healthy jobs too


def find_outlier_stacks(
    stacks: Mapping[int, Stack], ranks: Ranks, since: int | None
) -> JobFinding | None:
    """Return the rank, or the ranks of one machine, that wait for something else than all others.

    A collective has at least two members. A single rank in a collective that no other rank is in
    called it by mistake. Members of a collective that does not end all wait alike. If only the
    ranks of one machine wait for a device while their peers elsewhere wait for other ranks, the
    device is the cause.

    Parameters
    ----------
    stacks : mapping of int to Stack
        Stacks in which the ranks have stayed for long, by rank.
    ranks : Ranks
        All ranks of the job; without stacks of all of them there is no finding.
    since : int or None
        Start of the stall.

    Returns
    -------
    JobFinding or None
        None if a rank does not wait for another one, because that rank is then the suspect, or if
        the only outlier is rank 0.
    """
    waits = {rank: classify_wait(stack) for rank, stack in stacks.items()}
    if stacks.keys() != ranks.table.keys() or None in waits.values():
        return None
    devices = [rank for rank in sorted(waits) if waits[rank] == "device"]
    if devices:
        return _lone_device_wait(devices, stacks, ranks, since)
    return None if "recv" in waits.values() else _lone_collective(stacks, since)


def _lone_collective(stacks: Mapping[int, Stack], since: int | None) -> JobFinding | None:
    names = {rank: stack[0].name for rank, stack in stacks.items()}
    counts = Counter(names.values()).most_common()
    if len(counts) != 2 or counts[1][1] != 1 or counts[0][1] < _MIN_OTHERS:
        return None
    (usual, n_others), (odd, _) = counts
    rank = next(rank for rank, name in names.items() if name == odd)
    if rank == _LEADER_RANK:
        return None
    why = f"is the only rank in {odd}; all {n_others} others are in {usual}"
    return _outlier_finding([rank], why, stacks, since, _BRANCH_FAULT)


def _lone_device_wait(
    devices: Sequence[int], stacks: Mapping[int, Stack], ranks: Ranks, since: int | None
) -> JobFinding | None:
    machines = {ranks.machine(rank) for rank in devices}
    elsewhere = [set(ranks.peers(rank)).difference(devices) for rank in devices]
    peers = frozenset[int]().union(*elsewhere)
    if list(devices) == [_LEADER_RANK] or len(machines) > 1 or None in machines:
        return None
    if not all(elsewhere) or len(peers) < _MIN_OTHERS:
        return None
    own = "waits for its own device" if len(devices) == 1 else "wait for their own devices"
    why = f"{own}; {len(peers)} peers wait for other ranks"
    return _outlier_finding(devices, why, stacks, since, _DEVICE_FAULT)


def _outlier_finding(
    odd: Sequence[int], why: str, stacks: Mapping[int, Stack], since: int | None, fault: Fault
) -> JobFinding:
    candidates = tuple(
        CulpritCandidate(rank, why, STRONG / len(odd), since, fault=fault) for rank in odd
    )
    says = f"{format_ranks(odd)} {why}"
    waiting = frozenset(stacks.keys() - set(odd))
    usual = min(waiting)
    shown: dict[str, object] = {
        "frames": [str(call) for call in stacks[odd[0]]],
        "usual_frames": [str(call) for call in stacks[usual]],
        "usual_rank": usual,
    }
    evidence = (Evidence("stacks", says, odd[0], since, shown),)
    return JobFinding("hang", says, candidates, waiting, evidence, is_permanent=True)
