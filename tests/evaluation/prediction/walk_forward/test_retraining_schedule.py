from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.evaluation.prediction.walk_forward.retraining_schedule import (
    PooledFlags,
    best_length,
    is_finished,
    retraining_times,
    steady_length,
    times_with_instances,
)
from forewarn.features.time_units import DAY, HOUR, Nanoseconds

START = 20_000 * DAY  # a midnight
THREE_DAYS, NINE_DAYS = Nanoseconds(3 * DAY), Nanoseconds(9 * DAY)
DAYS = st.integers(1, 20).map(lambda days: days * DAY)
SPANS = st.integers(1, 30 * 24).map(lambda hours: hours * HOUR)


def times(
    first: int = START,
    last: int = START + 20 * DAY,
    *,
    longest: Nanoseconds = NINE_DAYS,
    horizon: Nanoseconds = DAY,
    every: Nanoseconds = THREE_DAYS,
    start: int | None = None,
    end: int | None = None,
) -> list[float]:
    """Return the retraining times in days after `START`."""
    found = retraining_times(
        first, last, longest=longest, horizon=horizon, every=every, start=start, end=end
    )
    return [(moment - START) / DAY for moment in found]


def test_first_time_follows_longest_length_and_horizon() -> None:
    assert times() == [10, 13, 16, 19]


def test_first_time_is_at_midnight() -> None:
    assert times(first=START + 1) == [11, 14, 17, 20]
    assert times(first=START - 1) == [10, 13, 16, 19]
    assert times(horizon=Nanoseconds(6 * HOUR)) == [10, 13, 16, 19]


def test_retraining_needs_record_after_it() -> None:
    assert times(last=START + 13 * DAY) == [10, 13]
    assert times(last=START + 13 * DAY - 1) == [10]
    assert times(last=START + 10 * DAY - 1) == []


def test_explicit_start_is_used() -> None:
    assert times(start=START + 12 * DAY) == [12, 15, 18]
    assert times(start=START + 12 * DAY + 6 * HOUR) == [12.25, 15.25, 18.25]
    assert times(start=START + 2 * DAY, end=START + 9 * DAY) == [2, 5, 8]


def test_all_times_lie_before_end() -> None:
    assert times(end=START + 16 * DAY) == [10, 13]
    assert times(end=START + 16 * DAY + 1) == [10, 13, 16]
    assert times(end=START + 90 * DAY) == [10, 13, 16, 19]


@given(st.integers(START, START + DAY), SPANS, SPANS, SPANS, SPANS)
def test_times_follow_contract(
    first: int,
    length_of_records: int,
    longest: Nanoseconds,
    horizon: Nanoseconds,
    every: Nanoseconds,
) -> None:
    last = first + length_of_records
    found = retraining_times(first, last, longest=longest, horizon=horizon, every=every)
    waited = longest + horizon
    if not found:
        midnight = ((first + waited + DAY - 1) // DAY) * DAY
        assert midnight > last
        return
    assert found[0] % DAY == 0
    assert first + waited <= found[0] < first + waited + DAY
    assert {b - a for a, b in pairwise(found)} <= {every}
    assert found[-1] <= last < found[-1] + every


def test_window_is_finished_after_last_horizon() -> None:
    over = START + 3 * DAY + DAY
    assert is_finished(START, over, every=THREE_DAYS, horizon=DAY)
    assert is_finished(START, over + 1, every=THREE_DAYS, horizon=DAY)
    assert not is_finished(START, over - 1, every=THREE_DAYS, horizon=DAY)


def test_longest_length_without_finished_window() -> None:
    assert best_length([12, 15, 9], None) == 15


@pytest.mark.parametrize(
    ("precision", "best"),
    [
        ({9: 0.5, 12: 0.8, 15: 0.6}, 12),
        ({9: 0.8, 12: 0.8, 15: 0.8}, 9),
        ({9: 0.1, 12: 0.8, 15: 0.8}, 12),
        ({9: None, 12: 0.0, 15: 0.0}, 12),
        ({9: None, 12: None, 15: 0.0}, 15),
        ({12: 0.4, 15: 0.3}, 12),
    ],
)
def test_best_length_with_ties_to_shorter(precision: dict[int, float | None], best: int) -> None:
    assert best_length([9, 12, 15], precision) == best
    assert best_length([15, 9, 12], precision) == best


def test_uncompared_length_is_not_chosen() -> None:
    # Only the longest was trained, and it flagged nothing: that is no evidence about the others.
    assert best_length([9, 12, 15], {15: None}) == 15


@given(st.dictionaries(st.integers(1, 30), st.none() | st.floats(0.0, 1.0), min_size=1))
def test_no_length_beats_chosen_length(precision: dict[int, float | None]) -> None:
    best = best_length(list(precision), precision)
    merit = {length: -1.0 if value is None else value for length, value in precision.items()}
    assert merit[best] == max(merit.values())
    assert best == min(length for length in merit if merit[length] == merit[best])


@given(
    st.lists(st.integers(0, 200), max_size=12), st.integers(1, 40), st.integers(1, 20), st.data()
)
def test_retrainings_without_instances_are_dropped(
    ends: list[int], longest: int, every: int, data: st.DataObject
) -> None:
    moments = list(range(data.draw(st.integers(0, 60)), 240, every))
    retrainings = times_with_instances(
        moments,
        np.array(ends, dtype=np.int64),
        longest=Nanoseconds(longest),
        every=Nanoseconds(every),
    )
    seen = [m for m in moments if any(m - longest <= end < m + every for end in ends)]
    assert retrainings == seen


LENGTHS = (9, 12, 15)


def flagged(hits: list[bool]) -> PooledFlags:
    """Return flags, each on a different machine."""
    return PooledFlags(np.array(hits, dtype=bool), np.arange(len(hits)))


def choose(current: int, found: dict[int, PooledFlags], machines: int = 60) -> int:
    return steady_length(LENGTHS, current, found, n_machines=machines, seed=0)


def test_clear_gain_changes_length() -> None:
    poor, good = flagged([False] * 50 + [True] * 10), flagged([True] * 50 + [False] * 10)
    assert choose(15, {9: poor, 12: good, 15: poor}) == 12


def test_gain_within_interval_keeps_length() -> None:
    # Three of thirty flags more; each length flags different machines.
    some = {
        n: PooledFlags(np.arange(30) < n, np.arange(30) + 30 * place)
        for place, n in enumerate(LENGTHS)
    }
    assert choose(12, some, machines=90) == 12
    assert choose(9, some, machines=90) == 9


def test_tie_without_length_in_use_is_shorter() -> None:
    same = {n: flagged([True, False]) for n in LENGTHS}
    assert choose(7, same) == 9


def test_length_is_unchanged_without_windows() -> None:
    assert choose(12, {}) == 12
    # A length without flags is not an alternative, and no reason to keep the current one.
    assert choose(12, {9: flagged([False, True]), 12: flagged([])}) == 9


@given(
    st.dictionaries(st.sampled_from(LENGTHS), st.lists(st.booleans(), max_size=12)),
    st.sampled_from(LENGTHS),
)
def test_steady_length_is_current_or_better(hits: dict[int, list[bool]], current: int) -> None:
    found = {length: flagged(some) for length, some in hits.items()}
    chosen = choose(current, found, machines=12)
    assert chosen == current or found[chosen].precision > (
        found[current].precision if current in found else -2
    )
