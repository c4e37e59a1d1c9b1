"""Who began a stand-still, against the definition by brute force."""

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
    """Draw jobs of up to 8 ranks: each waits in at most one operation, for others."""
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
    assert finding.of_program == (not expected)  # all that wait lead into circles
    assert finding.waiting == waiting
    assert sum(candidate.weight for candidate in finding.candidates) <= 1.0 + 1e-9


def test_cycle_with_origin_is_not_deadlock() -> None:
    """0 and 1 wait for each other, and 0 for 2 as well: 2 may have begun it all."""
    finding = wait_finding([stall({0}, {1, 2}, 1), stall({1}, {0}, 2)])
    assert finding is not None
    assert [candidate.rank for candidate in finding.candidates] == [2]
    assert not finding.of_program


def test_rank_without_dump_is_not_origin_with_cycle() -> None:
    """0 and 1 wait for each other; 2 waits for 3, which left no dump and may be in a circle."""
    silent = replace(stall({2}, set(), 3), silent=(3,))
    finding = wait_finding([stall({0}, {1}, 1), stall({1}, {0}, 2), silent])
    assert finding is not None
    assert (finding.candidates, finding.of_program) == ((), True)
    alone = wait_finding([silent])
    assert alone is not None
    assert [candidate.rank for candidate in alone.candidates] == [3]


def test_cycle_waiting_for_missing_dump_is_deadlock() -> None:
    """0 waits for 1 and 2, 1 for 0, and 2 for 3, which left no dump."""
    others = [stall({0}, {1, 2}, 1), stall({1}, {0}, 2)]
    silent = replace(stall({2}, set(), 3), silent=(3,))
    finding = wait_finding([*others, silent])
    assert finding is not None
    assert (finding.candidates, finding.of_program) == ((), True)
    pairs = [replace(item, variants={}) for item in others]  # both may send before they receive
    finding = wait_finding([*pairs, silent])
    assert finding is not None
    assert [candidate.rank for candidate in finding.candidates] == [3]


def test_waiting_requires_proven_absence() -> None:
    """4 may have entered as well: then 2 and 3 are in an operation that nobody leaves."""
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
    assert not finding.cannot_end  # clocks that are apart show it for a moment


def test_cycles_and_mismatches_are_permanent() -> None:
    circle = wait_finding([stall({0}, {1}, 1), stall({1}, {0}, 2)])
    absent = wait_finding([stall({0, 1}, {2})])
    assert circle is not None
    assert absent is not None
    assert (circle.cannot_end, absent.cannot_end) == (True, False)


def test_halted_device_is_permanent_and_absence_known() -> None:
    first, second = stall({0, 1}, {2}, 1), replace(stall({3}, {2}, 2), last=9)
    finding = wait_finding([first, second])
    assert finding is not None
    assert finding.absence == RankAbsence(frozenset({2}), 1, 9)
    assert not finding.cannot_end
    halted = wait_finding([replace(first, halted=(2,)), second])
    assert halted is not None
    assert halted.cannot_end
    silent = wait_finding([replace(first, absent=(), silent=(2,))])
    assert silent is not None
    assert silent.absence is None
