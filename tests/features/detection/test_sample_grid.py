from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.detection.sample_grid import (
    MAX_FILLED_GAP,
    TaskGrid,
    TaskGridError,
    build_task_grid,
)
from forewarn.features.time_units import SECOND


def laid(ticks: dict[str, list[int]], interval: int = SECOND, shift: int = 0) -> TaskGrid:
    names = list(ticks)
    codes = np.repeat(np.arange(len(names), dtype=np.int32), [len(t) for t in ticks.values()])
    time = np.concatenate([np.array(t, dtype=np.int64) for t in ticks.values()]) * interval
    return build_task_grid(codes, names, time + shift, interval)


def test_sample_goes_to_nearest_tick() -> None:
    grid = build_task_grid(
        np.array([0, 0, 1, 1], np.int32),
        ["b", "a"],
        np.array([100 * SECOND, int(101.4 * SECOND), int(99.6 * SECOND), 101 * SECOND]),
        SECOND,
    )
    assert grid.machines == ("a", "b")
    assert (grid.first_tick, grid.n_ticks) == (100, 2)
    found = grid.on_ticks(np.array([1.0, 2.0, 3.0, 4.0], np.float32))
    assert found.tolist() == [[3.0, 4.0], [1.0, 2.0]]


def test_short_gaps_are_filled() -> None:
    grid = laid({"a": [0, 3, 4, 9], "b": list(range(10)), "c": list(range(10))})
    found = grid.on_ticks(np.arange(24, dtype=np.float32))
    assert found[0, :5].tolist() == [0.0, 0.0, 1.0, 1.0, 2.0]
    assert np.isnan(found[0, 5:9]).all()
    assert found[0, 9] == 3.0


def test_earlier_of_two_nearest_samples_is_used() -> None:
    grid = laid({"a": [0, 2], "b": [0, 1, 2]})
    assert grid.on_ticks(np.array([5, 7, 1, 1, 1], np.float32))[0].tolist() == [5.0, 5.0, 7.0]


def test_no_values_outside_machine_lifetime() -> None:
    grid = laid({"a": [4, 5, 6], "b": list(range(10)), "c": list(range(10))})
    found = grid.on_ticks(np.ones(23, np.float32))
    assert np.flatnonzero(np.isfinite(found[0])).tolist() == [4, 5, 6]


def test_wrong_clock_does_not_extend_span() -> None:
    usual = list(range(100, 200))
    ticks = {f"n{i}": usual for i in range(9)} | {"off": [t + 86_400 for t in usual]}
    grid = laid(ticks)
    assert (grid.first_tick, grid.n_ticks) == (100, 100)
    assert grid.off_clock == ("off",)
    assert np.isnan(grid.on_ticks(np.ones(1000, np.float32))[9]).all()


def test_infinity_is_missing() -> None:
    grid = laid({"a": [0, 1, 2], "b": [0, 1, 2]})
    values = np.array([1, np.inf, 3, 1, 1, 1], np.float32)
    assert grid.on_ticks(values)[0].tolist() == [1.0, 1.0, 3.0]


def test_too_many_intervals_are_refused() -> None:
    with pytest.raises(TaskGridError, match="expected a shorter span"):
        laid({"a": [0, 10**9], "b": [0, 10**9], "c": [0, 10**9]})


def test_no_samples_are_refused() -> None:
    with pytest.raises(TaskGridError, match="no samples"):
        build_task_grid(np.empty(0, np.int32), [], np.empty(0, np.int64), SECOND)


@given(st.sets(st.integers(0, 40), min_size=2), st.integers(0, 10**6))
def test_fill_matches_plain_loop(ticks: set[int], shift: int) -> None:
    order = sorted(ticks)
    whole = list(range(41))
    grid = laid(
        {"a": [t + shift for t in order], "b": [t + shift for t in whole]}
        | {"c": [t + shift for t in whole]}
    )
    found = grid.on_ticks(np.concatenate([order, np.zeros(82)]).astype(np.float32))[0]
    for tick in whole:
        before = max((t for t in order if t <= tick), default=None)
        after = min((t for t in order if t >= tick), default=None)
        if before is None or after is None or after - before - 1 > MAX_FILLED_GAP:
            assert np.isnan(found[tick])
        else:
            nearest = before if tick - before <= after - tick else after
            assert found[tick] == nearest


def test_tick_numbers_agree_across_pulls() -> None:
    one, two = laid({"a": [5, 6], "b": [5, 6]}), laid({"a": [6, 7], "b": [6, 7]})
    assert one.time(1) == two.time(0) == 6 * SECOND
