from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.records.cells import (
    LostReadings,
    RowCells,
    add_blocks_up,
    add_runs_row_by_row,
    add_runs_up,
    add_up,
)
from forewarn.features.records.stretches import run_begins

VALUES = st.sampled_from([0.0, 1.0, -1.0, 0.1, 1e7, 16777213.0, 1e-3, np.nan])
LENGTHS = st.one_of(st.integers(1, 5), st.integers(30, 70))
RUNS = st.lists(st.tuples(VALUES, LENGTHS), min_size=1, max_size=12)
CELLS = st.lists(st.tuples(st.integers(-1, 3), LENGTHS), min_size=1, max_size=12)


def _lost(n_gpus: int, n_hours: int = 1, *, gpu_after_gpu: bool = True) -> LostReadings:
    return LostReadings.of(np.full((n_gpus, n_hours), 1000, dtype=np.int32), gpu_after_gpu)


def _lists(lost: LostReadings) -> tuple[list[int], list[int]]:
    cell, n_rows = lost.by_cell()
    return cell.tolist(), n_rows.tolist()


def test_cells_that_lost_rows_are_numbered_gpu_after_gpu_and_forgotten() -> None:
    values, hour_after_hour = np.full(3, np.nan, dtype=np.float32), np.array([4, 0, 4])
    lost = _lost(2, 3, gpu_after_gpu=False)
    add_up(values, hour_after_hour, np.zeros((1, 6)), lost)
    assert _lists(lost) == ([0, 2], [1, 2])
    lost.forget()
    assert _lists(lost) == ([], [])
    assert (lost.n_read == 1000).all()


@given(RUNS, CELLS, st.sampled_from([1, 2]))
def test_runs_add_up_to_the_same_bits_as_rows(
    runs: list[tuple[float, int]], cells: list[tuple[int, int]], n_sums: int
) -> None:
    cell = np.repeat([c[0] for c in cells], [c[1] for c in cells]).astype(np.int64)
    n_rows = np.array([r[1] for r in runs])
    value = np.array([r[0] for r in runs], dtype=np.float32)
    ends = np.minimum(np.cumsum(n_rows), len(cell))
    ends[-1] = len(cell)
    begin = np.append(0, ends[:-1])
    begin, value = begin[begin < ends], value[begin < ends]
    rows = np.repeat(value, np.diff(np.append(begin, len(cell))))
    by_row, by_run = np.zeros((n_sums, 4)), np.zeros((n_sums, 4))
    missing_rows, missing_runs = _lost(4), _lost(4)
    low, block = 100, run_begins(cell)
    add_runs_up(
        (begin + low, value, len(cell) + low),
        np.append(block, len(cell)) + low,
        cell[block],
        by_run,
        missing_runs,
    )
    add_up(rows, cell, by_row, missing_rows)
    assert by_run.tobytes() == by_row.tobytes()
    assert _lists(missing_runs) == _lists(missing_rows)


def test_a_run_over_two_cells_counts_in_both() -> None:
    added, missing = np.zeros((2, 2)), _lost(2)
    runs = np.array([0, 5]), np.array([3.0, np.nan], dtype=np.float32), 6
    block, cell = np.array([0, 2, 3, 6]), np.array([0, -1, 1])
    add_runs_up(runs, block, cell, added, missing)
    assert added.tolist() == [[6, 6], [18, 18]]
    assert _lists(missing) == ([1], [1])


def test_a_value_that_is_no_sum_of_powers_of_two_is_added_as_often_as_it_occurs() -> None:
    added = np.array([[0.3, 0.0]])
    value = np.array([0.1], dtype=np.float32)
    add_runs_up(
        (np.array([0]), value, 50),
        np.array([0, 10, 50]),
        np.array([0, 1]),
        added,
        _lost(2),
    )
    expected = [0.3, 0.0]
    for cell, n in ((0, 10), (1, 40)):
        for _ in range(n):
            expected[cell] += float(value[0])
    assert added[0].tolist() == pytest.approx(expected, abs=0)


@given(RUNS, st.lists(st.integers(-1, 5), min_size=1, max_size=60), st.sampled_from([1, 2]))
def test_runs_of_scattered_rows_add_up_to_the_same_bits(
    runs: list[tuple[float, int]], cells: list[int], n_sums: int
) -> None:
    cell = np.array(cells)
    rows = np.resize(np.repeat([r[0] for r in runs], [r[1] for r in runs]), len(cell))
    rows = rows.astype(np.float32)
    begin = run_begins(rows.view(np.int32))
    by_hour, by_gpu = np.zeros((n_sums, 3, 2)), np.zeros((n_sums, 2, 3))  # of two GPUs
    missing_rows, missing_runs = (_lost(2, 3, gpu_after_gpu=False) for _ in range(2))
    add_up(rows, cell, by_hour.reshape(n_sums, -1), missing_rows)
    run = begin + 7, rows[begin], len(cell) + 7
    add_runs_row_by_row(run, cell, by_gpu.reshape(n_sums, -1), missing_runs)
    assert by_gpu.tobytes() == np.ascontiguousarray(by_hour.transpose(0, 2, 1)).tobytes()
    assert _lists(missing_runs) == _lists(missing_rows)


@given(st.lists(VALUES, min_size=1, max_size=60), CELLS, st.sampled_from([1, 2]))
def test_blocks_add_up_to_the_same_bits_as_rows(
    values: list[float], cells: list[tuple[int, int]], n_sums: int
) -> None:
    cell = np.repeat([c[0] for c in cells], [c[1] for c in cells]).astype(np.int64)
    rows = np.resize(np.array(values, dtype=np.float32), len(cell))
    by_row, by_block = np.zeros((n_sums, 4)), np.zeros((n_sums, 4))
    missing_rows, missing_blocks = _lost(4), _lost(4)
    blocks = RowCells(100, cell).blocks()
    add_blocks_up(rows, *blocks, by_block, missing_blocks)
    add_up(rows, cell, by_row, missing_rows)
    assert by_block.tobytes() == by_row.tobytes()
    assert _lists(missing_blocks) == _lists(missing_rows)
