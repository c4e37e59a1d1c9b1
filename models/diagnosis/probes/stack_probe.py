"""Stack probe: whether stacks change, and which ranks are outside the wait of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from forewarn.features.diagnosis.ranks import format_ranks
from forewarn.features.diagnosis.stack_sample import (
    Stack,
    classify_wait,
    data_request,
    is_host_wait,
)
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    CulpritCandidate,
    Evidence,
    JobFinding,
)
from forewarn.models.diagnosis.verdict.probe import Probe

__all__ = ["StackSample", "find_divergent_stacks", "latest_divergent_stacks", "stack_probe"]

_MIN_EQUAL_SAMPLES = ((5, 2 * MINUTE), (3, 5 * MINUTE))  # over a span (Baidu 4.1; by hand: fewer)
_SAMPLING_JITTER = 5 * SECOND  # agents sample slightly early or late
_MAX_SAMPLE_AGE = 5 * MINUTE
_MAX_WAIT = 30 * MINUTE  # Megatron's time-out; no stall lasts longer
_MIN_COVERAGE = 0.5  # of the ranks
_MIN_OTHERS = 3
_MAX_DIVERGENT_SHARE = 0.125  # of the ranks, at least one
_MAX_SENTENCE_FRAMES, _MAX_DETAIL_FRAMES = (
    5,
    32,
)  # innermost frames in sentences, and in details


@dataclass(frozen=True, slots=True)
class StackSample:
    """Stacks of the ranks at one time.

    Attributes
    ----------
    time : int
        Nanoseconds since 1970 UTC.
    stacks : mapping of int to Stack
        By rank.
    """

    time: int
    stacks: Mapping[int, Stack]


def stack_probe(samples: Sequence[StackSample], n_ranks: int, at: int) -> Probe:
    """Return whether all ranks were in the same frames in 5 samples over 2 minutes, or 3 over 5.

    Parameters
    ----------
    samples : sequence of StackSample
        In time order, none after `at`.
    n_ranks : int
        Number of ranks of the job; with samples of less than half of them the probe is blind.
    at : int
        Nanoseconds since 1970 UTC.
    """
    if not samples or at - samples[-1].time > _MAX_SAMPLE_AGE:
        return Probe("stack", "blind", None, "no stack sample in the last 5 minutes")
    last = samples[-1]
    if len(last.stacks) < _MIN_COVERAGE * n_ranks:
        why = f"the last sample has only {len(last.stacks)} of {n_ranks} ranks"
        return Probe("stack", "blind", None, why)
    same = list(takewhile(lambda sample: not _moved(sample, last), reversed(samples)))
    if len(same) < len(samples):
        moved = _moved(samples[-len(same) - 1], last)
        span = (last.time - same[-1].time) / SECOND
        if not _is_long(same):
            changed = format_ranks(moved)
            return Probe(
                "stack", "active", None, f"{changed} moved within the last {span + 30:.0f} s"
            )
    elif not _is_long(same):
        return Probe(
            "stack",
            "blind",
            None,
            f"{len(samples)} samples, at least 5 over 2 min or 3 over 5 min needed",
        )
    since, is_late = same[-1].time, len(same) == len(samples)
    why = f"all {len(last.stacks)} stacks are the same in {'all ' * is_late}{len(same)} samples"
    return Probe("stack", "idle", since, why, confirmed_at=_confirmed_at(same), is_late=is_late)


def _moved(sample: StackSample, last: StackSample) -> list[int]:
    """Return the ranks whose stack differs between two samples that both contain them."""
    return [
        rank
        for rank, stack in sample.stacks.items()
        if rank in last.stacks and last.stacks[rank] != stack
    ]


def _is_long(same: Sequence[StackSample]) -> bool:
    span = same[0].time - same[-1].time + _SAMPLING_JITTER
    return any(len(same) >= count and span >= limit for count, limit in _MIN_EQUAL_SAMPLES)


def _confirmed_at(same: Sequence[StackSample]) -> int:
    """Return when the limit had passed, given equal samples in reverse time order."""
    return next(same[n].time for n in range(len(same) - 1, -1, -1) if _is_long(same[n:]))


def latest_divergent_stacks(
    samples: Sequence[StackSample], n_ranks: int, at: int, since: int | None
) -> JobFinding | None:
    """Return the ranks with a divergent stack in the last sample.

    Parameters
    ----------
    samples : sequence of StackSample
        In time order, none after `at`.
    n_ranks : int
        Number of ranks of the job; samples of less than half of them are ignored.
    at : int
        Nanoseconds since 1970 UTC; a sample older than half an hour is ignored.
    since : int or None
        Start of the stall.
    """
    last = samples[-1] if samples else None
    if last is None or at - last.time > _MAX_WAIT or len(last.stacks) < _MIN_COVERAGE * n_ranks:
        return None
    finding = find_divergent_stacks(last.stacks, since)
    if finding is None:
        return None
    odd = [candidate.rank for candidate in finding.candidates]
    is_only_outsider = (
        len(odd) == 1
        and len(last.stacks) == n_ranks > _MIN_OTHERS
        and is_host_wait(last.stacks[odd[0] or 0])
        and all(classify_wait(stack) for rank, stack in last.stacks.items() if rank != odd[0])
    )
    return replace(finding, observed_at=last.time, is_only_outsider=is_only_outsider)


def find_divergent_stacks(stacks: Mapping[int, Stack], since: int | None) -> JobFinding | None:
    """Return the ranks whose stack is outside the waits that the others are in.

    Parameters
    ----------
    stacks : mapping of int to Stack
        One sample, by rank.
    since : int or None
        Start of the stall.

    Returns
    -------
    JobFinding or None
        None if less than half of the ranks wait and no half of them does the same. Ranks in recv,
        or in a barrier together with others, are not the origin.
    """
    waits = {rank: classify_wait(stack) for rank, stack in stacks.items()}
    inside = {rank for rank, wait in waits.items() if wait is not None}
    outside = sorted(stacks.keys() - inside)
    if 2 * len(inside) < len(stacks):
        outside = _unlike_majority({rank: stacks[rank] for rank in outside})
    if not inside and all(data_request(stack) for stack in stacks.values()):
        cause = (
            f"all {len(stacks)} ranks wait for data, such as in {data_request(stacks[min(stacks)])}"
        )
        fault = _data_fault(f"all {len(stacks)} ranks", stacks[min(stacks)])
        return JobFinding("hang", cause, fault=fault)
    if not outside and not inside:
        return None
    if not outside:
        outside = _in_other_collective(stacks, waits)
    is_minority = len(outside) <= max(1, _MAX_DIVERGENT_SHARE * len(stacks))
    weight = MODERATE / len(outside) if outside and is_minority else 0.0
    candidates = tuple(
        CulpritCandidate(
            rank,
            f"{_doing(stacks[rank])} while the others wait",
            weight,
            since,
            fault=_data_fault(f"rank {rank}", stacks[rank]),
        )
        for rank in outside
        if weight
    )
    cause = f"rank {outside[0]} {_doing(stacks[outside[0]])}" if len(outside) == 1 else ""
    waiting = frozenset(_waiting(waits)) - set(outside)
    usual = min(inside - set(outside), default=None)
    evidence = tuple(
        _evidence(rank, usual, stacks, since)
        for rank in outside[:_MAX_SENTENCE_FRAMES]
        if is_minority or usual is None
    )
    return JobFinding("hang", cause, candidates, waiting, evidence)


def _doing(stack: Stack) -> str:
    request = data_request(stack)
    return f"is in {stack[0]}" if request is None else f"waits for data in {request}"


def _data_fault(who: str, stack: Stack) -> Fault | None:
    request = data_request(stack)
    if request is None:
        return None
    verb = "blocks" if who.startswith("rank") else "block"
    return Fault("application", f"fix the data loader: {who} {verb} in {request}")


def _in_other_collective(stacks: Mapping[int, Stack], waits: Mapping[int, str | None]) -> list[int]:
    """Return the ranks in another collective than most ranks of the job."""
    names = {rank: stacks[rank][0].name for rank, wait in waits.items() if wait == "collective"}
    if not names:
        return []
    usual, count = Counter(names.values()).most_common(1)[0]
    return [rank for rank in sorted(names) if 2 * count > len(stacks) and names[rank] != usual]


def _unlike_majority(stacks: Mapping[int, Stack]) -> list[int]:
    """Return the ranks whose stack functions differ from those of at least half of the ranks."""
    shapes = {rank: tuple(call[:2] for call in stack) for rank, stack in stacks.items()}
    shape, count = Counter(shapes.values()).most_common(1)[0]
    return [rank for rank in sorted(stacks) if 2 * count >= len(stacks) and shapes[rank] != shape]


def _waiting(waits: Mapping[int, str | None]) -> list[int]:
    """Return the ranks that are not the origin, except a rank that is alone in a barrier."""
    in_barrier = [rank for rank, wait in waits.items() if wait == "barrier"]
    receiving = [rank for rank, wait in waits.items() if wait == "recv"]
    return receiving + (in_barrier if len(in_barrier) > 1 else [])


def _evidence(
    rank: int, usual: int | None, stacks: Mapping[int, Stack], since: int | None
) -> Evidence:
    """Describe a rank's stack next to that of a waiting rank."""
    path = " < ".join(str(call) for call in stacks[rank][:_MAX_SENTENCE_FRAMES])
    details: dict[str, object] = {
        "frames": [str(call) for call in stacks[rank][:_MAX_DETAIL_FRAMES]]
    }
    if usual is None:
        return Evidence("stacks", f"rank {rank} is in {path}", rank, since, details)
    details |= {
        "usual_frames": [str(call) for call in stacks[usual][:_MAX_DETAIL_FRAMES]],
        "usual_rank": usual,
    }
    says = f"rank {rank} is in {path}, rank {usual} in {stacks[usual][0]}"
    return Evidence("stacks", says, rank, since, details)
