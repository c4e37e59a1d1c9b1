from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.evaluation.prediction.length_selection import Flagged, steady_length

LENGTHS = (9, 12, 15)


def flagged(hits: list[bool]) -> Flagged:
    """Return flags, each on a machine of its own."""
    return Flagged(np.array(hits, dtype=bool), np.arange(len(hits)))


def choose(current: int, found: dict[int, Flagged], machines: int = 60) -> int:
    return steady_length(LENGTHS, current, found, n_machines=machines, seed=0)


def test_a_clear_gain_changes_the_length() -> None:
    poor, good = flagged([False] * 50 + [True] * 10), flagged([True] * 50 + [False] * 10)
    assert choose(15, {9: poor, 12: good, 15: poor}) == 12


def test_a_gain_within_its_interval_does_not() -> None:
    # Three flags of thirty more, each length on machines of its own.
    some = {
        n: Flagged(np.arange(30) < n, np.arange(30) + 30 * place) for place, n in enumerate(LENGTHS)
    }
    assert choose(12, some, machines=90) == 12
    assert choose(9, some, machines=90) == 9


def test_of_equal_ones_it_is_the_shorter_where_none_is_in_use() -> None:
    same = {n: flagged([True, False]) for n in LENGTHS}
    assert choose(7, same) == 9


def test_without_a_window_the_length_stays() -> None:
    assert choose(12, {}) == 12
    # What flagged nothing is no rival, and no reason to stay.
    assert choose(12, {9: flagged([False, True]), 12: flagged([])}) == 9


@given(
    st.dictionaries(st.sampled_from(LENGTHS), st.lists(st.booleans(), max_size=12)),
    st.sampled_from(LENGTHS),
)
def test_it_is_the_current_or_one_that_is_better(hits: dict[int, list[bool]], current: int) -> None:
    found = {length: flagged(some) for length, some in hits.items()}
    chosen = choose(current, found, machines=12)
    assert chosen == current or found[chosen].precision > (
        found[current].precision if current in found else -2
    )
