"""Loops that find the cell of each row, GPU by hour, and add a column up by cell."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = ["add_runs_up", "add_up", "lie_together", "place_rows"]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
CountArray = npt.NDArray[np.int32]


def lie_together(order: IntArray) -> bool:
    """Tell whether most of the first records of a GPU were read one after another."""
    some = order[: 1 << 12]
    return bool(2 * np.count_nonzero(np.diff(some) == 1) > len(some))


@compiled
def place_rows(
    records: tuple[IntArray, npt.NDArray[np.int32], IntArray, BoolArray],
    rows: tuple[int, int],
    grid: tuple[int, int, int, int, int],
    cell_as_read: IntArray,
    first_row: IntArray,
    count: CountArray,
) -> None:
    """Fill in the cell of each row as read, and the first row and the number of rows of each."""
    order, gpu, time, counted = records
    bucket, first, low, per_gpu, per_hour = grid
    hour, begin = -1, (first - 1) * bucket
    for row in range(rows[0], rows[1]):
        if not counted[row]:
            continue
        number = gpu[row]
        if not begin <= time[row] < begin + bucket:  # a division takes longer than all the rest
            hour = time[row] // bucket - first
            begin = (first + hour) * bucket
        cell_as_read[order[row] - low] = number * per_gpu + hour * per_hour
        if first_row[number, hour] < 0:
            first_row[number, hour] = order[row]
        count[number, hour] += 1


@compiled
def add_up(
    values: npt.NDArray[np.float32],
    cell_as_read: IntArray,
    added: DoubleArray,
    missing: CountArray,
) -> bool:
    """Add values up by cell: their sum, how many are missing and, if there is room, squares.

    Tells whether none is missing.
    """
    all_read = True
    for row in range(len(values)):
        cell = cell_as_read[row]
        if cell < 0:
            continue
        value = np.float64(values[row])
        if np.isnan(value):
            missing[cell] += 1
            all_read = False
        else:
            added[0, cell] += value
            if len(added) == 2:
                added[1, cell] += value * value
    return all_read


@compiled
def add_runs_up(
    runs: tuple[IntArray, npt.NDArray[np.float32], int],
    block: IntArray,
    cell_of_block: IntArray,
    added: DoubleArray,
    missing: CountArray,
) -> bool:
    """Do the same with runs of values, to the same bits.

    Parameters
    ----------
    runs : tuple
        First row of each, value of each, and one more than the last row.
    block : ndarray of shape (n + 1,)
        First row of each block of rows of one cell, and one more than the last row.
    cell_of_block : ndarray of shape (n,)
    added, missing : ndarray
        As of `add_up`.
    """
    begin, values, end = runs
    all_read, number = True, 0
    for run in range(len(begin)):
        value = np.float64(values[run])
        if value == 0:
            continue
        row = begin[run]
        last = begin[run + 1] if run + 1 < len(begin) else end
        if block[number + 1] <= row:
            number += np.searchsorted(block[number:], row, side="right") - 1
        while row < last:
            n_rows = min(last, block[number + 1]) - row
            cell = cell_of_block[number]
            row += n_rows
            number += row == block[number + 1]
            if cell < 0:
                continue
            if np.isnan(value):
                missing[cell] += n_rows
                all_read = False
            else:
                added[0, cell] = _added(added[0, cell], value, n_rows)
                if len(added) == 2:
                    added[1, cell] = _added(added[1, cell], value * value, n_rows)
    return all_read


@compiled
def _added(total: float, value: float, n: int) -> float:
    """Add a value n times, rounding as often.

    A float32 and its square have 48 digits at most: 32 times as much is exact.
    """
    if total == 0 and n <= 32:
        return value * n
    for _ in range(n):
        total += value
    return total
