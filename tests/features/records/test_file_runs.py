"""The runs of a file are those of its rows by GPU and time, in whatever order they come."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from forewarn.features.records import file_runs
from forewarn.features.records.file_check import Keys
from forewarn.features.records.file_runs import FileRuns
from forewarn.features.records.table import Column

# Time, GPU (-1: none), whether it is failed, and whether the row is to be kept.
ROWS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(-1, 3), st.booleans(), st.booleans()), max_size=40
)


def keys_of(rows: list[tuple[int, int, bool, bool]]) -> Keys:
    time, gpu, failed, keep = (np.array([row[i] for row in rows]) for i in range(4))
    kept = keep.astype(bool) & (gpu >= 0)
    serial = Column(gpu.astype(np.int32), ("A", "B", "C", "D"))
    odd = np.zeros(0, dtype=np.int64)
    return Keys(serial, time.astype(np.int64), kept, failed.astype(bool), len(rows), False, odd)


def laid_out(runs: FileRuns) -> list[tuple[int, int, bool, int]]:
    """Return GPU, time, state and row of each row of all runs."""
    columns: Any = zip(
        runs.code, runs.time, runs.step, runs.n_rows, runs.failed, runs.row, strict=True
    )
    return [
        (int(code), int(time + step * n), bool(failed), int(row + n))
        for code, time, step, n_rows, failed, row in columns
        for n in range(n_rows)
    ]


@given(rows=ROWS, by_time=st.booleans())
@example(rows=[(0, 0, False, True), (0, 0, False, True), (5, 0, False, True)], by_time=True)
@example(rows=[(0, 1, False, True), (1, 0, False, True), (2, 1, True, True)], by_time=True)
def test_runs_are_the_rows_to_keep_by_gpu_and_time(
    rows: list[tuple[int, int, bool, bool]], by_time: bool
) -> None:
    rows = sorted(rows, key=lambda row: row[0]) if by_time else rows
    keys = keys_of(rows)
    runs = FileRuns.of_rows(keys)
    taken = np.arange(len(rows)) if runs.order is None else runs.order
    assert sorted(taken.tolist()) == [*range(len(rows))]
    kept = sorted(np.flatnonzero(keys.keep), key=lambda row: (rows[row][1], rows[row][0]))
    found = [(code, time, failed, int(taken[row])) for code, time, failed, row in laid_out(runs)]
    # In a file whose rows lie by GPU already, GPUs come as they lie.
    found = sorted(found, key=lambda row: row[:1]) if runs.order is None else found
    assert found == [(rows[row][1], rows[row][0], rows[row][2], int(row)) for row in kept]


@given(rows=ROWS)
def test_one_passage_finds_what_rows_in_order_have(
    rows: list[tuple[int, int, bool, bool]],
) -> None:
    keys = keys_of(sorted(rows, key=lambda row: row[0]))
    at_once = FileRuns.of_rows(keys)
    with patch.object(file_runs, "_runs_by_time", lambda *_: None):
        in_order = FileRuns.of_rows(keys)
    assert laid_out(at_once) == laid_out(in_order)
    assert at_once.step.tolist() == in_order.step.tolist()
    if at_once.order is not None and in_order.order is not None:
        assert at_once.order.tolist() == in_order.order.tolist()
