"""Numbers come back from runs as they were, and those that rise evenly take few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.even_runs import EvenRuns


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_numbers_that_rise_evenly_are_one_run(kind: type[np.signedinteger]) -> None:
    values = np.arange(10, 1000, 6, dtype=kind)
    runs = EvenRuns.of(values)
    assert (runs.start.tolist(), runs.first.tolist(), runs.step.tolist()) == ([0, 165], [10], [6])
    assert runs.values().dtype == kind
    assert (runs.values() == values).all()


def test_each_gpu_of_each_file_is_a_run() -> None:
    values = np.concatenate([np.arange(144), np.arange(500, 644), np.arange(7, 20)])
    assert EvenRuns.of(values).start.tolist() == [0, 144, 288, 301]


def test_uneven_numbers_are_kept_as_they_are() -> None:
    values = np.array([3, 1, 4, 1, 5, 9, 2, 6] * 9)
    runs = EvenRuns.of(values)
    assert not len(runs.first)
    assert (runs.values() == values).all()


@given(
    st.lists(
        st.tuples(st.integers(-(2**62), 2**62), st.integers(-3, 3), st.integers(1, 40)), max_size=9
    )
)
def test_whatever_was_packed_comes_back(pieces: list[tuple[int, int, int]]) -> None:
    parts = [first + step * np.arange(n) for first, step, n in pieces]
    values = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    unpacked = EvenRuns.of(values).values()
    assert unpacked.dtype == values.dtype
    assert unpacked.tolist() == values.tolist()
