"""Slow rank by the times that ranks spend in collectives: the last one to enter is in it shortest.

All ranks leave a collective together, so that the others are in it while they wait for the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np

from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.diagnosis.communicators.communicator_state import CommunicatorState
from forewarn.features.diagnosis.communicators.inspector_records import (
    RankCollectives,
    communicators_of_records,
)
from forewarn.features.diagnosis.communicators.job_rank_numbers import JobRankNumbers
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.models.diagnosis.slow.lateness import Lateness
from forewarn.models.diagnosis.slow.slow_rank import slow_finding
from forewarn.models.diagnosis.verdict.job_verdict import JobFinding

__all__ = ["collective_wait_findings"]

_WAITING = ("AllReduce", "AllGather", "ReduceScatter")  # no rank leaves before all have entered
_MIN_OPERATIONS = 50
_N_PERIODS = 20  # a rank may be late in one operation of many, once a step
_MIN_SHARE = 0.1  # of the time; times in the kernel differ by some per cent between healthy ranks
_MIN_RANKS = 4
_MIN_STANDARD_ERRORS = 4.0
_MICROSECONDS = 1e6


def collective_wait_findings(records: Sequence[RankCollectives], ranks: Ranks) -> list[JobFinding]:
    """Return the slow rank of each communicator, unless it waits for another one elsewhere.

    Parameters
    ----------
    records : sequence of RankCollectives
    ranks : Ranks
        All ranks of the job.
    """
    snapshot = communicators_of_records(records)
    numbers = JobRankNumbers(snapshot, ranks, {})
    groups = []
    for state in snapshot.communicators:
        lateness = _lateness(state, records, numbers)
        finding = slow_finding(
            lateness, ranks, part="inspector", period="period", min_share=_MIN_SHARE
        )
        groups.append((lateness, finding))
    return [
        finding
        for lateness, finding in groups
        if finding is not None
        and _is_steady(finding, lateness)
        and not _waits_elsewhere(finding, lateness, groups)
    ]


def _lateness(
    state: CommunicatorState, records: Sequence[RankCollectives], numbers: JobRankNumbers
) -> dict[int, Lateness]:
    """Return the lateness of a communicator's ranks; empty if any rank is not recorded or known."""
    if not _MIN_RANKS <= state.size == len(state.processes):
        return {}
    job_ranks = [numbers.number(state, rank) for rank in range(state.size)]
    known = [number for number in job_ranks if number is not None]
    if len(set(known)) < state.size:
        return {}
    best: dict[int, Lateness] = {}
    for operation in _WAITING:
        rows = {
            record.rank: record.rows
            for record in records
            if (record.communicator, record.size) == (state.name, state.size)
            and record.operation == operation
        }
        late = dict(_by_period(rows, known)) if len(rows) == state.size else {}
        if _largest(late) > _largest(best):
            best = late
    return best


def _largest(lateness: Mapping[int, Lateness]) -> float:
    shares = [float(np.median(late.own)) / late.step for late in lateness.values()]
    return max(shares) - float(np.median(shares)) if shares else -1.0


def _by_period(
    rows: Mapping[int, Int64Array], job_ranks: Sequence[int]
) -> Iterator[tuple[int, Lateness]]:
    """Yield the lateness by period of all ranks in the operations that all have recorded."""
    shared = reduce(np.intersect1d, [table[:, 0] for table in rows.values()])
    if len(shared) < _MIN_OPERATIONS:
        return
    tables = [rows[rank][np.isin(rows[rank][:, 0], shared)] for rank in sorted(rows)]
    inside = np.stack([table[:, 1] for table in tables]) / _MICROSECONDS
    times = np.median(np.stack([table[:, 2] for table in tables]), axis=0)
    span = float(times[-1] - times[0]) / _MICROSECONDS
    if span < inside.max(axis=0).sum() / 2:  # all were written at the end
        return
    own = inside.max(axis=0) - inside
    starts = np.linspace(0, len(shared), _N_PERIODS, endpoint=False).astype(int)
    begin = (times[starts] * 1000).astype(np.int64)
    sums: Float64Array = np.add.reduceat(own, starts, axis=1)
    for number, late in zip(job_ranks, sums, strict=True):
        yield number, Lateness(number, late, begin, span / _N_PERIODS)


def _is_steady(finding: JobFinding, lateness: Mapping[int, Lateness]) -> bool:
    """Return whether the slow rank is later than the others by far more than by chance."""
    first = finding.candidates[0].rank
    others = np.stack([late.own for rank, late in lateness.items() if rank != first])
    excess = np.concatenate([late.own for rank, late in lateness.items() if rank == first])
    excess = excess - np.median(others, axis=0)
    error = float(excess.std(ddof=1) / np.sqrt(len(excess)))
    return float(excess.mean()) >= _MIN_STANDARD_ERRORS * error


def _waits_elsewhere(
    finding: JobFinding,
    lateness: Mapping[int, Lateness],
    groups: Sequence[tuple[Mapping[int, Lateness], JobFinding | None]],
) -> bool:
    """Return whether the slow rank waits in another communicator for a rank that is as slow."""
    first = finding.candidates[0].rank
    for others, other in groups:
        if other is None or others is lateness or first not in others:
            continue
        late = {candidate.rank for candidate in other.candidates}
        if first not in late:
            return True
    return False
