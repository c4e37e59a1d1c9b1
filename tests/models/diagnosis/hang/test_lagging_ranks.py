"""Ranks behind in several communicators: only the one that waits for no other is accused."""

from __future__ import annotations

import datetime as dt
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.communicators.communicator_state import (
    CommunicatorState,
    GpuProcess,
    StatusSnapshot,
)
from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.models.diagnosis.hang.lagging_ranks import are_stuck, find_lags, lag_finding

TP, PP, DP = 2, 2, 4
SIZE = TP * PP * DP
RANKS = Ranks(
    {
        n: Rank(n, f"m{n // 4}", n % 4, tp=n % TP, pp=n // TP % PP, dp=n // (TP * PP))
        for n in range(SIZE)
    }
)


def number(tp: int, pp: int, dp: int) -> int:
    return tp + TP * pp + TP * PP * dp


def snapshot(behind: dict[str, set[int]], dead: frozenset[int] = frozenset()) -> StatusSnapshot:
    """Return all communicators; `behind` has the ranks behind by kind of communicator."""
    groups = {"world": [list(range(SIZE))]}
    groups["tp"] = [[number(t, p, d) for t in range(TP)] for p, d in product(range(PP), range(DP))]
    groups["dp"] = [[number(t, p, d) for d in range(DP)] for t, p in product(range(TP), range(PP))]
    states = []
    for kind, members in groups.items():
        for index, ranks in enumerate(members):
            late = behind.get(kind, set())
            counts = {i: 50 - (rank in late) for i, rank in enumerate(ranks) if rank not in dead}
            processes = {i: GpuProcess(f"m{rank // 4}", 100 + rank) for i, rank in enumerate(ranks)}
            gone = frozenset(i for i, rank in enumerate(ranks) if rank in dead)
            states.append(
                CommunicatorState(
                    f"{kind}{index}", len(ranks), {"AllReduce": counts}, processes, dead=gone
                )
            )
    return StatusSnapshot(tuple(states), SIZE)


def accused(status: StatusSnapshot, **more: bool) -> dict[int | None, float]:
    finding = lag_finding("ras", find_lags(status, RANKS), RANKS, **more)
    return {} if finding is None else {c.rank: c.weight for c in finding.candidates}


@given(st.integers(0, SIZE - 1))
def test_tensor_partner_is_only_a_victim(rank: int) -> None:
    row = RANKS.table[rank]
    pair = {number(t, row.pp or 0, row.dp or 0) for t in range(TP)}
    assert accused(snapshot({"tp": {rank}, "dp": pair})) == {rank: 1.0}


@given(st.integers(0, TP - 1), st.integers(0, DP - 1))
def test_other_stage_behind_leaves_doubt(tp: int, dp: int) -> None:
    culprit = number(tp, 0, dp)
    pipeline = {number(t, p, dp) for t, p in product(range(TP), range(PP))}
    status = snapshot({"tp": {culprit}, "dp": pipeline})
    candidates = accused(status, is_certain=True)
    assert culprit in candidates or None in candidates
    finding = lag_finding("ras", find_lags(status, RANKS), RANKS, is_certain=True)
    assert finding is not None
    assert finding.origins == frozenset()


@given(st.sets(st.integers(0, SIZE - 1), min_size=1, max_size=2))
def test_dead_ranks_come_before_late_ones(dead: set[int]) -> None:
    late = min({*range(SIZE)} - dead)
    finding = lag_finding(
        "ras", find_lags(snapshot({"world": {late}}, frozenset(dead)), RANKS), RANKS
    )
    assert finding is not None
    assert finding.origins == dead
    machines = {RANKS.machine(rank) for rank in dead}
    if len(dead) > 1 and len(machines) == 1:
        assert [c.machine for c in finding.candidates] == [*machines]
    else:
        assert {c.rank for c in finding.candidates} == dead


@given(st.dictionaries(st.sampled_from(["world", "tp", "dp"]), st.just(set[int]())))
def test_equal_counts_accuse_none(behind: dict[str, set[int]]) -> None:
    assert accused(snapshot(behind)) == {}


def test_order_of_snapshots_tells_movement() -> None:
    start = dt.datetime(2026, 5, 2, 9)

    def at(minute: int, count: int) -> StatusSnapshot:
        state = CommunicatorState("a", 2, {"AllReduce": {0: count, 1: count - 1}})
        return StatusSnapshot((state,), 2, start + dt.timedelta(minutes=minute))

    assert are_stuck(at(0, 4), at(6, 4)) is True
    assert are_stuck(at(0, 4), at(1, 4)) is None
    assert are_stuck(at(0, 4), at(1, 5)) is False
