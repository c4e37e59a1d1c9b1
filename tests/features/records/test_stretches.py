from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.stretches import RowStretch, RunStretch

VALUES = st.sampled_from([0.0, 0.0, -0.0, 1.0, 2.5, np.nan])
PIECES = st.lists(st.tuples(VALUES, st.integers(1, 4)), min_size=1, max_size=12)
LOW = 5


def both(pieces: list[tuple[float, int]]) -> tuple[RowStretch, RunStretch]:
    """Return the same rows from 5 on, row by row and run after run."""
    value = np.array([p[0] for p in pieces], dtype=np.float32)
    n_rows = np.array([p[1] for p in pieces])
    ends = LOW + np.cumsum(n_rows)
    rows = RowStretch(LOW, np.repeat(value, n_rows))
    return rows, RunStretch(ends - n_rows, value, int(ends[-1]))


def assert_same(rows: RowStretch, runs: RunStretch) -> None:
    every = rows.low + np.arange(len(rows.values))
    assert runs.end == rows.low + len(rows.values)
    assert rows.at(every).tobytes() == rows.values.tobytes()
    assert runs.at(every).tobytes() == rows.values.tobytes()
    assert runs.rows_not_zero().tolist() == rows.rows_not_zero().tolist()


@given(PIECES, st.data())
def test_runs_hold_the_same_values_as_rows(
    pieces: list[tuple[float, int]], data: st.DataObject
) -> None:
    rows, runs = both(pieces)
    assert_same(rows, runs)
    inside = st.integers(LOW, runs.end - 1)
    some = np.array(data.draw(st.lists(inside, max_size=9)), dtype=np.int64)
    assert runs.at(some).tobytes() == rows.at(some).tobytes()
    windows = np.minimum(some[:, None] + np.arange(3), runs.end - 1).astype(np.int32)
    assert runs.at(windows).tobytes() == rows.at(windows).tobytes()
    low, high = sorted(data.draw(st.tuples(inside, inside)))
    assert_same(rows.between(low, high + 1), runs.between(low, high + 1))
    assert_same(rows.between(low, low), runs.between(low, low))
    assert_same(rows.mapped(np.negative), runs.mapped(np.negative))


@given(PIECES, st.data())
def test_rows_that_are_not_known_are_missing_in_both(
    pieces: list[tuple[float, int]], data: st.DataObject
) -> None:
    rows, runs = both(pieces)
    drawn = data.draw(st.sets(st.integers(LOW, runs.end - 1)))
    unknown = np.array(sorted(drawn), dtype=np.int64)
    before = rows.values.copy()
    assert_same(RowStretch(LOW, before).without(unknown), runs.without(unknown))
    assert_same(rows, runs)


@given(PIECES, st.lists(st.integers(0, 48), max_size=4))
def test_rows_part_after_part_are_the_runs_of_all(
    pieces: list[tuple[float, int]], cuts: list[int]
) -> None:
    rows, _ = both(pieces)
    edges = sorted({rows.low, rows.high, *(min(rows.low + cut, rows.high) for cut in cuts)})
    parts = [rows.between(*edge) for edge in pairwise(edges)]
    whole = RunStretch.joined(parts)
    assert_same(rows, whole)
    assert len(whole.begin) <= len(pieces) + len(parts)


def test_values_that_may_not_be_written_to_stay_as_they_are() -> None:
    values = np.ones(3, dtype=np.float32)
    values.flags.writeable = False
    assert np.isnan(RowStretch(0, values).without(np.array([1])).values[1])
    assert values.tolist() == [1, 1, 1]
