from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.number_runs import KeySegments, NumberRuns
from forewarn.features.records.row_cleaning import add_increases
from forewarn.features.records.stretches import RunStretch

VALUES = st.sampled_from([0.0, 0.0, -0.0, 1.0, 2.5, 7.0, np.nan, 2.0**41, 1e-30])
# A value and how many rows hold it, the GPU of these rows and whether they count.
PIECES = st.lists(
    st.tuples(VALUES, st.integers(1, 4), st.integers(-1, 2), st.booleans()), min_size=1, max_size=20
)


def laid_out(runs: NumberRuns) -> bytes:
    return np.repeat(runs.value, runs.n_rows).tobytes()


@given(PIECES)
def test_runs_lay_out_to_the_same_bits(pieces: list[tuple[float, int, int, bool]]) -> None:
    values = np.repeat([p[0] for p in pieces], [p[1] for p in pieces])
    runs = NumberRuns.of(values)
    assert laid_out(runs) == values.tobytes()
    assert laid_out(NumberRuns.joined([runs, runs])) == 2 * values.tobytes()
    assert (np.diff(runs.value.view(np.int64)) != 0).all()
    order = np.random.default_rng(len(values)).permutation(len(values)).astype(np.int32)
    in_order, taken = NumberRuns.of(values[order]), NumberRuns.of(values, order)
    assert [column.tobytes() for column in taken] == [column.tobytes() for column in in_order]


@given(PIECES, st.integers(0, 80))
def test_gains_and_missing_values_are_those_of_the_rows(
    pieces: list[tuple[float, int, int, bool]], cut: int
) -> None:
    n_rows = [p[1] for p in pieces]
    values = np.repeat([p[0] for p in pieces], n_rows)
    gpu = np.repeat([p[2] for p in pieces], n_rows).astype(np.int32)
    counted = np.repeat([p[3] for p in pieces], n_rows) & (gpu >= 0)
    gained = np.empty(len(values), dtype=np.float32)
    add_increases(values, gpu, counted, np.full(3, np.nan), gained)
    segments, before = KeySegments.of(gpu, counted, 3), np.full(3, np.nan)
    cut, found, missing = min(cut, len(values)), [], 0
    for low, high in ((0, cut), (cut, len(values))):  # one part after another
        runs, of_part = NumberRuns.of(values[low:high]), segments.between(low, high)
        found.append(runs.gains(low, of_part, before))
        missing += runs.missing(of_part)
    stretch = RunStretch.joined(found)
    assert stretch.at(np.arange(len(values))).tobytes() == gained.tobytes()
    assert missing == np.isnan(values[counted]).sum()


def test_a_counter_that_stands_still_gains_at_its_changes_alone() -> None:
    runs = NumberRuns(np.array([3.0, 5.0]), np.array([4, 6], dtype=np.int32))
    gpu = np.array([0] * 5 + [1] * 5, dtype=np.int32)
    stretch = runs.gains(0, KeySegments.of(gpu, np.full(10, True), 2), np.full(2, np.nan))
    nan = pytest.approx(np.nan, nan_ok=True)
    assert stretch.begin.tolist() == [0, 1, 4, 5, 6]
    assert stretch.value.tolist() == [nan, 0, 2, nan, 0]


def test_values_that_nothing_reads_are_null_in_single_precision() -> None:
    runs = NumberRuns.of(np.array([2.0**41, 0.1, -(2.0**40)])).single()
    assert runs.stretch(7).value.tolist() == pytest.approx(
        [np.nan, np.float32(0.1), np.nan], nan_ok=True, abs=0
    )
    assert runs.stretch(7).begin.tolist() == [7, 8, 9]
