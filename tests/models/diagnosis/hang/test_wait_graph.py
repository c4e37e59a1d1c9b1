"""Origins in the wait-for graph, compared with a brute-force definition."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.diagnosis.hang.stalled_operations import Stall
from forewarn.models.diagnosis.hang.wait_graph import wait_finding
from forewarn.models.diagnosis.verdict.rank_absence import RankAbsence


def stall(waiting: set[int], absent: set[int], number: int = 1) -> Stall:
    ranks = tuple(sorted(waiting))
    return Stall(
        group=f"g{number}",
        seq=7,
        operation="all_reduce",
        since=number,
        last=number,
        waiting=ranks,
        absent=tuple(sorted(absent)),
        halted=(),
        silent=(),
        variants={"x": ranks},
    )


@st.composite
def waits(draw: st.DrawFn) -> list[Stall]:
    """Draw jobs of up to 8 ranks, each of which waits in at most one operation for others."""
    n_operations = draw(st.integers(1, 5))
    waits_in = draw(st.lists(st.integers(0, n_operations), min_size=2, max_size=8))
    stalls = []
    for number in range(1, n_operations + 1):
        waiting = {rank for rank, chosen in enumerate(waits_in) if chosen == number}
        others = sorted(set(range(len(waits_in))) - waiting)
        if waiting and others:
            absent = draw(st.sets(st.sampled_from(others), min_size=1))
            stalls.append(stall(waiting, absent, number))
    return stalls


@given(waits())
def test_candidates_are_sinks_of_wait_graph(stalls: list[Stall]) -> None:
    waiting = {rank for item in stalls for rank in item.waiting}
    absent = {rank for item in stalls for rank in item.absent}
    finding = wait_finding(stalls)
    if not stalls:
        assert finding is None
        return
    assert finding is not None
    expected = absent - waiting
    assert {candidate.rank for candidate in finding.candidates} == expected
    assert finding.is_program_error == (not expected)  # all waits lead into cycles
    assert finding.waiting == waiting
    assert sum(candidate.weight for candidate in finding.candidates) <= 1.0 + 1e-9


def test_cycle_with_origin_is_not_deadlock() -> None:
    """0 and 1 wait for each other, and 0 also waits for 2, which may be the origin."""
    finding = wait_finding([stall({0}, {1, 2}, 1), stall({1}, {0}, 2)])
    assert finding is not None
    assert [candidate.rank for candidate in finding.candidates] == [2]
    assert not finding.is_program_error


def test_rank_without_dump_is_not_origin_with_cycle() -> None:
    """0 and 1 wait for each other; 2 waits for 3, which left no dump and may be in a cycle."""
    silent = replace(stall({2}, set(), 3), silent=(3,))
    finding = wait_finding([stall({0}, {1}, 1), stall({1}, {0}, 2), silent])
    assert finding is not None
    assert (finding.candidates, finding.is_program_error) == ((), True)
    alone = wait_finding([silent])
    assert alone is not None
    assert [candidate.rank for candidate in alone.candidates] == [3]


def test_cycle_waiting_for_missing_dump_is_deadlock() -> None:
    """0 waits for 1 and 2, 1 for 0, and 2 for 3, which left no dump."""
    others = [stall({0}, {1, 2}, 1), stall({1}, {0}, 2)]
    silent = replace(stall({2}, set(), 3), silent=(3,))
    finding = wait_finding([*others, silent])
    assert finding is not None
    assert (finding.candidates, finding.is_program_error) == ((), True)
    pairs = [replace(item, variants={}) for item in others]  # both may send before they receive
    finding = wait_finding([*pairs, silent])
    assert finding is not None
    assert [candidate.rank for candidate in finding.candidates] == [3]


def test_waiting_requires_proven_absence() -> None:
    """4 may have entered as well; 2 and 3 would then be in an operation that no rank leaves."""
    silent = replace(stall({2, 3}, set(), 2), silent=(4,))
    finding = wait_finding([stall({5}, {6}, 1), silent, stall({0, 1}, set(), 3)])
    assert finding is not None
    assert finding.waiting == {5}


def test_missing_dump_is_weak_with_stuck_operation() -> None:
    silent = replace(stall({2}, set(), 3), silent=(3,))
    finding = wait_finding([stall({0, 1}, set(), 1), silent])
    assert finding is not None
    assert [(c.rank, c.weight) for c in finding.candidates] == [(3, 0.25)]


def test_fully_entered_operation_identifies_no_culprit() -> None:
    finding = wait_finding([stall({0, 1, 2, 3}, set())])
    assert finding is not None
    assert [candidate.weight for candidate in finding.candidates] == [0.25] * 4
    assert finding.cause == ""
    assert not finding.is_permanent  # clock skew causes this briefly


def test_cycles_and_mismatches_are_permanent() -> None:
    circle = wait_finding([stall({0}, {1}, 1), stall({1}, {0}, 2)])
    absent = wait_finding([stall({0, 1}, {2})])
    assert circle is not None
    assert absent is not None
    assert (circle.is_permanent, absent.is_permanent) == (True, False)


def test_halted_device_is_permanent_and_absence_known() -> None:
    first, second = stall({0, 1}, {2}, 1), replace(stall({3}, {2}, 2), last=9)
    finding = wait_finding([first, second])
    assert finding is not None
    assert finding.absence == RankAbsence(frozenset({2}), 1, 9)
    assert not finding.is_permanent
    halted = wait_finding([replace(first, halted=(2,)), second])
    assert halted is not None
    assert halted.is_permanent
    silent = wait_finding([replace(first, absent=(), silent=(2,))])
    assert silent is not None
    assert silent.absence is None


def test_rank_left_behind_is_origin() -> None:
    left = replace(stall(set(), set(), 1), variants={"x": (4,)}, left_behind=4)
    finding = wait_finding([left, replace(stall({0, 1}, set(), 2), behind=(4,))])
    assert finding is not None
    assert [(c.rank, c.weight) for c in finding.candidates] == [(4, 1.0)]
    assert finding.origins == {4}
    assert "which all other members have left" in finding.evidence[0].says
    alone = wait_finding([left])
    assert alone is not None
    assert [(c.rank, c.weight) for c in alone.candidates] == [(4, 0.5)]


def test_overlapping_operations_are_no_deadlock() -> None:
    circle = [
        replace(stall({0}, set(), 1), behind=(1,)),
        replace(stall({1}, set(), 2), behind=(0,)),
    ]
    finding = wait_finding(circle)
    assert finding is not None
    assert not finding.is_program_error


def test_many_missing_ranks_are_not_independent() -> None:
    few, many = wait_finding([stall(set(range(6)), {6, 7})]), wait_finding([stall({0, 1}, {2, 3})])
    assert few is not None
    assert many is not None
    assert (few.origins, many.origins) == (frozenset({6, 7}), frozenset())
    assert few.cause == "ranks 6, 7 have stopped independently"


def test_single_waiter_may_itself_have_stopped() -> None:
    single_waiter = wait_finding([replace(stall({1}, set()), silent=(0,))], 1)
    two_waiters = wait_finding([replace(stall({1, 2}, set()), silent=(0,))], 1)
    assert single_waiter is not None
    assert two_waiters is not None
    assert [(c.rank, c.weight) for c in (*single_waiter.candidates, *two_waiters.candidates)] == [
        (0, 0.5),
        (0, 1.0),
    ]
