from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.detection.peer_deviation import (
    medians_of_others,
    partial_sort,
    peer_deviations,
)
from forewarn.models.detection.windows import Windows


@given(st.integers(0, 10**6), st.integers(3, 12), st.integers(1, 3))
def test_reference_is_median_of_others(seed: int, n: int, n_groups: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 5, (4, n)).astype(np.float32)
    values[generator.random((4, n)) < 0.2] = np.nan
    groups = generator.integers(0, n_groups, n)
    found = medians_of_others(values, groups)
    for w in range(4):
        for i in range(n):
            mine = [j for j in range(n) if groups[j] == groups[i] and np.isfinite(values[w, j])]
            if np.isnan(values[w, i]) or len(mine) < 3:
                assert np.isnan(found[w, i])
            else:
                others = [j for j in mine if j != i or len(mine) == 3]
                assert found[w, i] == np.median([values[w, j] for j in others])


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=40), st.integers(0, 39))
def test_partial_sort_partitions(values: list[float], k: int) -> None:
    k %= len(values)
    array = np.array(values, np.float32)
    partial_sort(array, len(array), k)
    assert array[k] == np.sort(np.array(values, np.float32))[k]
    assert (array[:k] <= array[k]).all()
    assert (array[k:] >= array[k]).all()


def test_window_offset_square_and_level() -> None:
    windows = np.zeros((1, 2, 4), np.float32)
    windows[0, :, 3] = [1.0, 3.0]
    found = peer_deviations(Windows.from_values(windows), np.ones((1, 4), bool), np.zeros(4, int))
    assert found.offset[0].tolist() == [0.0, 0.0, 0.0, 2.0]
    assert found.square[0].tolist() == [0.0, 0.0, 0.0, 5.0]
    assert found.level[0].tolist() == [0.0, 0.0, 0.0, 2.0]


@given(st.integers(0, 10**6), st.integers(3, 9), st.integers(1, 3), st.integers(2, 5))
def test_shared_rows_match_separate_windows(seed: int, n: int, n_groups: int, length: int) -> None:
    generator = np.random.default_rng(seed)
    series = generator.normal(0, 1, (1, n, 30)).astype(np.float32)
    series[generator.random(series.shape) < 0.05] = np.nan
    positions = np.flatnonzero(generator.random(31 - length) < 0.8)  # the other windows are paused
    shared = Windows.from_series(series, length, positions)
    apart = shared.apart()
    assert apart.shape == (len(positions), length, n)
    present = np.asarray(~np.isnan(apart).any(axis=1))
    groups = generator.integers(0, n_groups, n)
    together = peer_deviations(shared, present, groups)
    by_itself = peer_deviations(Windows.from_values(apart), present, groups)
    for part in ("offset", "square", "level"):
        assert getattr(together, part).tobytes() == getattr(by_itself, part).tobytes()


def test_outlier_does_not_move_reference() -> None:
    values = np.array([[1.0, 1.1, 0.9, 50.0]], np.float32)
    apart = np.abs(values - medians_of_others(values, np.zeros(4, int)))
    assert apart[0, :3].max() < 0.25
    assert apart[0, 3] > 48


def test_two_machines_give_no_value() -> None:
    assert np.isnan(medians_of_others(np.zeros((3, 2), np.float32), np.zeros(2, int))).all()


@pytest.mark.parametrize("groups", [[0, 0, 0, 0, 1, 1, 1, 1]])
def test_comparison_stays_within_group(groups: list[int]) -> None:
    values = np.array([[0.0, 0.0, 0.0, 0.0, 9.0, 9.0, 9.0, 9.0]], np.float32)
    found = medians_of_others(values, np.array(groups))
    assert (found == values).all()
