"""Stacks where everybody waits: who alone is in another collective, or waits for its own device.

Without a recorder nothing says who is missing where. Yet ranks that run the same program stand in
the same call, and what holds up a collective holds up all of its members alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from forewarn.features.diagnosis.ranks import Ranks, format_ranks
from forewarn.features.diagnosis.stack_sample import Stack, classify_wait
from forewarn.models.diagnosis.verdict.job_verdict import (
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["find_outlier_stacks"]

_MIN_OTHERS = 3  # others that run the same program and stand elsewhere
_LEADER_RANK = 0  # measures, logs and broadcasts for all: it differs from the others anyway


def find_outlier_stacks(
    stacks: Mapping[int, Stack], ranks: Ranks, since: int | None
) -> JobFinding | None:
    """Return who alone waits for something that nobody else waits for.

    A collective has two members or more. A single rank in one that no other rank is in has called
    it by itself. Where a collective does not end, all of its members wait alike: if those that
    wait for a device are on one machine, and peers of theirs elsewhere wait for other ranks, it is
    the device that they wait for.

    Parameters
    ----------
    stacks : mapping of int to Stack
        By rank, in which all have stood for long.
    ranks : Ranks
        All of the job; of a job that is not seen as a whole nobody is alone.
    since : int or None
        When they stood so first.

    Returns
    -------
    Finding or None
        None where a rank waits for nobody, as then that one is to be asked. Rank 0 alone is none.
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
    why = f"is alone in {odd}, all {n_others} others are in {usual}"
    return _outlier_finding([rank], why, stacks, since)


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
    why = f"{own}, {len(peers)} peers wait for other ranks"
    return _outlier_finding(devices, why, stacks, since)


def _outlier_finding(
    odd: Sequence[int], why: str, stacks: Mapping[int, Stack], since: int | None
) -> JobFinding:
    candidates = tuple(CulpritCandidate(rank, why, STRONG / len(odd), since) for rank in odd)
    says = f"{format_ranks(odd)} {why}"
    waiting = frozenset(stacks.keys() - set(odd))
    usual = min(waiting)
    shown: dict[str, object] = {
        "frames": [str(call) for call in stacks[odd[0]]],
        "usual_frames": [str(call) for call in stacks[usual]],
        "usual_rank": usual,
    }
    evidence = (Evidence("stacks", says, odd[0], since, shown),)
    return JobFinding("hang", says, candidates, waiting, evidence, cannot_end=True)
