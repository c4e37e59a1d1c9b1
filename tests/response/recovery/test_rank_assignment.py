"""Which machine gets which rank after a loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.response.recovery.rank_assignment import assign

SIX = ["a", "b", "c", "d", "e", "f"]


def test_six_in_units_of_two_without_a_spare_shrink_to_four() -> None:
    assignment = assign(SIX, {"f"}, [], 2, 2)
    assert assignment.machines == ("a", "b", "c", "d")
    assert assignment.waiting == ("e",)


def test_survivor_of_a_rank_that_is_gone_fills_the_vacant_one() -> None:
    assert assign(SIX, {"a", "c"}, [], 2, 2).machines == ("e", "b", "f", "d")


def test_spare_takes_the_rank_of_the_lost_machine() -> None:
    assignment = assign(SIX, {"c"}, ["s", "t"], 2, 2)
    assert assignment.machines == ("a", "b", "s", "d", "e", "f")
    assert assignment.waiting == ("t",)


def test_below_the_minimum_the_job_waits() -> None:
    assignment = assign(SIX, {"a", "b", "c"}, [], 2, 4)
    assert assignment.machines == ()
    assert assignment.waiting == ("d", "e", "f")


def test_shrunk_job_grows_again() -> None:
    shrunk = assign(SIX, {"f"}, [], 2, 2)
    grown = assign(shrunk.machines, (), [*shrunk.waiting, "f"], 2, 2, nodes=6)
    assert grown.machines == ("a", "b", "c", "d", "e", "f")


@pytest.mark.parametrize(
    ("unit", "minimum", "nodes", "message"),
    [
        (3, 2, 6, "`unit` must be at most `minimum`"),
        (0, 2, 6, "`unit` must be at least 1"),
        (1, 7, 6, "`minimum` must be at most `nodes`"),
        (4, 4, 6, "`nodes` must be a multiple of `unit`"),
    ],
)
def test_invalid_sizes_are_refused(unit: int, minimum: int, nodes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        assign(SIX, (), (), unit, minimum, nodes=nodes)


def test_machine_with_two_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="must name each machine once"):
        assign(["a", "a"], (), (), 1, 1)


machines = st.integers(0, 30).map(str)


@given(
    units=st.integers(1, 6),
    unit=st.integers(1, 4),
    least=st.integers(1, 6),
    now=st.integers(0, 24),
    lost=st.sets(machines),
    spares=st.lists(machines),
)
def test_properties(
    units: int, unit: int, least: int, now: int, lost: set[str], spares: list[str]
) -> None:
    nodes, minimum = units * unit, min(least, units) * unit
    ranks = [str(number) for number in range(min(now, nodes))]
    assignment = assign(ranks, lost, spares, unit, minimum, nodes=nodes)
    chosen, everyone = assignment.machines, [*assignment.machines, *assignment.waiting]
    usable = {*ranks, *spares} - lost
    assert sorted(everyone) == sorted(usable)  # each once, none forgotten
    assert len(chosen) % unit == 0
    assert not chosen or minimum <= len(chosen) <= nodes
    for rank, machine in enumerate(ranks[: len(chosen)]):
        if machine not in lost:
            assert chosen[rank] == machine
    # As large as possible: it shrinks only if no spare is left for another unit.
    assert len(chosen) == nodes or len(usable) < max(len(chosen) + unit, minimum)
