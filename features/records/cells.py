"""The cell of each row, GPU by hour, and loops that add a column up by cell."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.line import Line
from forewarn.features.records.stretches import run_begins
from forewarn.features.threads import in_parallel, in_threads, n_threads

__all__ = [
    "BlockCells",
    "CellShape",
    "LostReadings",
    "PlacedRows",
    "RowCells",
    "add_blocks_up",
    "add_runs_row_by_row",
    "add_runs_up",
    "add_up",
    "cell_range",
    "in_gpu_order",
    "lie_together",
]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
CountArray = npt.NDArray[np.int32]
_TILE = 32  # numbers of eight bytes: 8 KiB of each array


class CellShape(NamedTuple):
    """How hours of GPUs are numbered as cells.

    Attributes
    ----------
    n_gpus, n_hours : int
    bucket : int
        Nanoseconds of an hour.
    first : int
        Number of the first hour since 1970.
    gpu_after_gpu : bool
        Or else hour after hour: what is added one after another is to lie together.
    """

    n_gpus: int
    n_hours: int
    bucket: int
    first: int
    gpu_after_gpu: bool

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.n_gpus * self.n_hours

    @property
    def steps(self) -> tuple[int, int]:
        """How far it is from a cell to that of the next GPU, and to that of the next hour."""
        return (self.n_hours, 1) if self.gpu_after_gpu else (1, self.n_gpus)


class RowCells(NamedTuple):
    """The cell of each row as read, where rows are scattered.

    Attributes
    ----------
    low : int
        First of the rows.
    cell : ndarray of shape (n,), int32 or int64
        -1 for rows that do not count.
    """

    low: int
    cell: IntArray

    @property
    def high(self) -> int:
        """One more than the last row."""
        return self.low + len(self.cell)

    def at(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """Return the cells of some rows as read."""
        return np.asarray(self.cell[rows - self.low])

    def between(self, low: int, high: int) -> RowCells:
        """Return the cells of the rows [low, high)."""
        return RowCells(low, self.cell[low - self.low : high - self.low])

    def blocks(self) -> BlockCells:
        """Return the blocks of rows of one cell."""
        begin = run_begins(self.cell)
        return BlockCells(np.append(begin, len(self.cell)) + self.low, self.cell[begin])


class BlockCells(NamedTuple):
    """The cell of each block of rows as read: rows of one cell, one after another.

    Attributes
    ----------
    begin : ndarray of shape (n + 1,), int64
        First row of each, and one more than the last row.
    cell : ndarray of shape (n,), int32 or int64
        -1 for rows that do not count.
    """

    begin: IntArray
    cell: IntArray

    @property
    def low(self) -> int:
        """First of the rows."""
        return int(self.begin[0])

    @property
    def high(self) -> int:
        """One more than the last row."""
        return int(self.begin[-1])

    def at(self, rows: npt.NDArray[np.integer]) -> IntArray:
        """Return the cells of some rows as read."""
        return np.asarray(self.cell[np.searchsorted(self.begin, rows, side="right") - 1])

    def blocks(self) -> BlockCells:
        """Return itself."""
        return self

    def between(self, low: int, high: int) -> BlockCells:
        """Return the blocks of the rows [low, high), of which there is one."""
        first = int(np.searchsorted(self.begin, low, side="right")) - 1
        last = int(np.searchsorted(self.begin, high))
        begin = self.begin[first : last + 1]
        if begin[0] < low or begin[-1] > high:  # seldom: where files begin, blocks do
            begin = np.clip(begin, low, high)
        return BlockCells(begin, self.cell[first:last])


class LostReadings(NamedTuple):
    """Counts rows without a reading: most cells have none, and only the others are gone through.

    Attributes
    ----------
    n_rows : ndarray of shape (n_gpus, n_hours)
        Rows of each cell.
    n_read : ndarray of shape (n_gpus, n_hours)
        Those with a reading: all, until some are lost.
    cells : ndarray of shape (n_gpus x n_hours,)
        Room for the cells that have lost some, GPU after GPU, each once.
    n : ndarray of shape (1,), int64
        How many those are.
    gpu_after_gpu : bool
        How cells are numbered where values are added up (`CellShape`).
    first_cell : int
        The one that the sums begin with which are added to.
    """

    n_rows: CountArray
    n_read: CountArray
    cells: IntArray
    n: IntArray
    gpu_after_gpu: bool
    first_cell: int = 0

    @classmethod
    def of(cls, n_rows: CountArray, gpu_after_gpu: bool) -> LostReadings:
        """Begin with all rows read."""
        kind = np.int32 if n_rows.size < 2**31 else np.int64
        cells: IntArray = np.empty(n_rows.size, dtype=kind)
        return cls(n_rows, n_rows.copy(), cells, np.zeros(1, dtype=np.int64), gpu_after_gpu)

    def by_cell(self) -> tuple[IntArray, CountArray]:
        """Return the cells that have lost rows, rising, and how many each has lost."""
        cell = np.sort(self.cells[: self.n[0]])
        return cell, self.n_rows.ravel()[cell] - self.n_read.ravel()[cell]

    def forget(self) -> None:
        """Take all rows for read again."""
        cell = self.cells[: self.n[0]]
        self.n_read.ravel()[cell] = self.n_rows.ravel()[cell]
        self.n[0] = 0


class PlacedRows(NamedTuple):
    """The rows of records that count, placed in cells.

    Attributes
    ----------
    cells : RowCells or BlockCells
    first_row : ndarray of shape (n_gpus, n_hours)
        First row of each cell in the columns as read, -1 if it has none.
    row_count : ndarray of shape (n_gpus, n_hours), int32
    """

    cells: RowCells | BlockCells
    first_row: IntArray
    row_count: CountArray

    @classmethod
    def of(cls, line: Line, shape: CellShape) -> PlacedRows:
        """Place the runs that count."""
        kind = np.int32 if shape.size < 2**31 else np.int64
        low, high = line.extent_of(line.counted)
        first_row = np.full(shape[:2], -1, dtype=np.int32 if high < 2**31 else np.int64)
        count = np.full(shape[:2], 0, dtype=np.int32)
        if not len(line.rows):
            return cls(_blocks_of(line, shape, kind, first_row, count), first_row, count)
        cell: IntArray = np.empty(high - low, kind)
        in_parallel(lambda first, last: cell[first:last].fill(-1), len(cell))

        def fill_in(runs: tuple[int, int]) -> None:
            _place_rows(line, runs, shape, shape.steps, low, (cell, first_row, count))

        # Each thread has GPUs of its own, and so cells of its own.
        cuts = line.run_bounds(shape.n_gpus)[
            np.arange(n_threads() + 1) * shape.n_gpus // n_threads()
        ]
        in_threads(fill_in, pairwise(cuts.tolist()))
        return cls(RowCells(low, cell), first_row, count)


def _blocks_of(
    line: Line, shape: CellShape, kind: type, first_row: IntArray, count: CountArray
) -> BlockCells:
    """Return the blocks of the runs that count, in the order in which they were read."""
    runs = np.flatnonzero(line.counted)
    runs = runs[np.argsort(line.order[runs], kind="stable")]
    n_hours = line.last_time[runs] // shape.bucket - line.time[runs] // shape.bucket + 1
    most = int(np.minimum(n_hours, line.n_rows[runs]).sum()) + len(runs)  # and what lies between
    begin = np.empty(most + 1, dtype=np.int64)
    cell: IntArray = np.empty(most, dtype=kind)
    n = _place_runs(line, runs, shape, shape.steps, (begin, cell, first_row, count))
    return BlockCells(begin[: n + 1].copy(), cell[:n].copy())


def lie_together(line: Line) -> bool:
    """Tell whether most of the first records of a GPU were read one after another."""
    some = line.order_at(np.arange(min(line.n, 1 << 12)))
    return bool(2 * np.count_nonzero(np.diff(some) == 1) > len(some))


@compiled
def _place_rows(
    line: Line,
    runs: tuple[int, int],
    shape: CellShape,
    steps: tuple[int, int],
    low: int,
    room: tuple[IntArray, IntArray, CountArray],
) -> None:
    """Fill in the cell of each row as read, and the first row and the number of rows of each."""
    cell, first_row, count = room
    hour, begin = -1, (shape.first - 1) * shape.bucket
    for run in range(runs[0], runs[1]):
        if line.filled[run] or not line.alive[run]:
            continue
        gpu, time = line.gpu[run], line.time[run]
        for row in range(line.start[run], line.start[run + 1]):
            if len(line.times):
                time = line.times[row]
            if not begin <= time < begin + shape.bucket:  # a division takes longer than the rest
                hour = time // shape.bucket - shape.first
                begin = (shape.first + hour) * shape.bucket
            as_read = line.rows[row]
            cell[as_read - low] = gpu * steps[0] + hour * steps[1]
            if first_row[gpu, hour] < 0:
                first_row[gpu, hour] = as_read
            count[gpu, hour] += 1
            time += line.step[run]


@compiled
def _place_runs(
    line: Line,
    runs: IntArray,
    shape: CellShape,
    steps: tuple[int, int],
    room: tuple[IntArray, IntArray, IntArray, CountArray],
) -> int:
    """Put first row and cell of each block into two arrays and return how many there are."""
    begin, cell, first_row, count = room
    n, end = 0, line.order[runs[0]] if len(runs) else 0
    for run in runs:
        as_read = line.order[run]
        if as_read != end:
            begin[n], cell[n] = end, -1
            n += 1
        gpu, row, hour, n_rows = line.gpu[run], line.start[run], 0, 0
        full = shape.bucket // line.step[run] if line.step[run] > 0 else 0
        full = 0 if len(line.times) or full * line.step[run] != shape.bucket else full
        while row < line.start[run + 1]:
            if full and n_rows:  # all hours but the first one and the last have as many rows
                hour, n_rows = hour + 1, min(full, line.start[run + 1] - row)
            else:
                hour, n_rows = _hour_of(line, run, row, shape)
            begin[n], cell[n] = as_read, gpu * steps[0] + hour * steps[1]
            if first_row[gpu, hour] < 0:
                first_row[gpu, hour] = as_read
            count[gpu, hour] += n_rows
            row, as_read, n = row + n_rows, as_read + n_rows, n + 1
        end = as_read
    begin[n] = end
    return n


@compiled
def _hour_of(line: Line, run: int, row: int, shape: CellShape) -> tuple[int, int]:
    """Return the hour of a row of a run, and how many from it on lie in that hour."""
    left = line.start[run + 1] - row
    if len(line.times):
        time = line.times[row]
    else:
        time = line.time[run] + line.step[run] * (row - line.start[run])
    hour = time // shape.bucket
    end = (hour + 1) * shape.bucket
    if not len(line.times):
        return hour - shape.first, min(left, -((time - end) // max(1, line.step[run])))
    n_rows = 1
    while n_rows < left and line.times[row + n_rows] < end:
        n_rows += 1
    return hour - shape.first, n_rows


@compiled
def _lose(lost: LostReadings, cell: int, n_rows: int) -> None:
    """Note rows of a cell without a reading."""
    n_gpus, n_hours = lost.n_rows.shape
    gpu, hour = cell // n_hours, cell % n_hours
    if not lost.gpu_after_gpu:
        gpu, hour = cell % n_gpus, cell // n_gpus
    if lost.n_read[gpu, hour] == lost.n_rows[gpu, hour]:
        lost.cells[lost.n[0]] = gpu * n_hours + hour
        lost.n[0] += 1
    lost.n_read[gpu, hour] -= n_rows


@compiled
def add_up(
    values: npt.NDArray[np.float32], cell_as_read: IntArray, added: DoubleArray, lost: LostReadings
) -> None:
    """Add values up by cell: their sum and, if there is room, squares."""
    totals, squares, first = added[0], added[len(added) - 1], lost.first_cell
    if len(added) == 1:  # what counts is 0 nearly always: its cell need not be looked up
        for row in range(len(values)):
            value = np.float64(values[row])
            if value != 0 and cell_as_read[row] >= 0:
                if np.isnan(value):
                    _lose(lost, cell_as_read[row], 1)
                else:
                    totals[np.uint64(cell_as_read[row] - first)] += value
        return
    for row in range(len(values)):
        value, cell = np.float64(values[row]), cell_as_read[row]
        if cell >= 0 and not np.isnan(value):
            target = np.uint64(cell - first)  # of no sign, so that none is looked for
            totals[target] += value
            squares[target] += value * value
        elif cell >= 0:
            _lose(lost, cell, 1)


@compiled
def add_blocks_up(
    values: npt.NDArray[np.float32],
    begin: IntArray,
    cell_of_block: IntArray,
    added: DoubleArray,
    lost: LostReadings,
) -> None:
    """Do the same with rows that lie in blocks (`BlockCells`), to the same bits.

    `values` are those from the first block on.
    """
    totals, squares = added[0], added[len(added) - 1]  # the totals come last where they are one
    end = np.uint64(0)  # of no sign, so that none is looked for
    for number in range(len(cell_of_block)):
        first, end = end, np.uint64(begin[number + 1] - begin[0])
        if cell_of_block[number] < 0:
            continue
        cell = np.uint64(cell_of_block[number] - lost.first_cell)
        total, square = totals[cell], squares[cell]
        for row in range(first, end):
            value = np.float64(values[row])
            total += value
            square += value * value
        if np.isnan(total):  # seldom: so that it is not asked of each row
            total, square, n_rows = _add_read(values[first:end], totals[cell], squares[cell])
            if n_rows:
                _lose(lost, cell_of_block[number], n_rows)
        squares[cell] = square
        totals[cell] = total


@compiled
def _add_read(
    values: npt.NDArray[np.float32], total: float, square: float
) -> tuple[float, float, int]:
    """Add values and their squares to sums; return how many are missing, too."""
    lost = 0
    for number in range(len(values)):
        value = np.float64(values[number])
        if np.isnan(value):
            lost += 1
        else:
            total += value
            square += value * value
    return total, square, lost


@compiled
def add_runs_up(
    runs: tuple[IntArray, npt.NDArray[np.float32], int],
    block: IntArray,
    cell_of_block: IntArray,
    added: DoubleArray,
    lost: LostReadings,
) -> None:
    """Do the same with runs of values, to the same bits.

    Parameters
    ----------
    runs : tuple
        First row of each, value of each, and one more than the last row.
    block : ndarray of shape (n + 1,)
        First row of each block of rows of one cell, and one more than the last row.
    cell_of_block : ndarray of shape (n,)
    added, lost
        As of `add_up`.
    """
    begin, values, end = runs
    totals, squares = added[0], added[len(added) - 1]
    number, step = np.uint64(0), np.uint64(1)
    for run in range(len(begin)):
        value = np.float64(values[run])
        if value == 0:
            continue
        row = begin[run]
        last = begin[run + 1] if run + 1 < len(begin) else end
        if block[number + step] <= row:
            number += np.uint64(np.searchsorted(block[number:], row, side="right") - 1)
        while row < last:
            stop = min(last, block[number + step])
            n_rows, row, cell = stop - row, stop, cell_of_block[number]
            if stop == block[number + step]:
                number += step
            if cell < 0:
                continue
            if np.isnan(value):
                _lose(lost, cell, n_rows)
            else:
                target = np.uint64(cell - lost.first_cell)
                total, square = totals[target], squares[target]
                squares[target] = _added(square, value * value, n_rows)
                totals[target] = _added(total, value, n_rows)


@compiled
def add_runs_row_by_row(
    runs: tuple[IntArray, npt.NDArray[np.float32], int],
    cell_as_read: IntArray,
    added: DoubleArray,
    lost: LostReadings,
) -> None:
    """Do the same where rows of one cell do not lie together.

    Parameters
    ----------
    runs : tuple
        As of `add_runs_up`.
    cell_as_read : ndarray of shape (n_rows,)
        Of their rows, hour after hour.
    added : ndarray of shape (1 or 2, n_cells)
        GPU after GPU: few are added to, and so they need not lie together.
    lost : LostReadings
    """
    begin, values, end = runs
    n_gpus, n_hours = lost.n_rows.shape
    for run in range(len(begin)):
        value = np.float64(values[run])
        if value == 0:
            continue
        last = begin[run + 1] if run + 1 < len(begin) else end
        for cell in cell_as_read[begin[run] - begin[0] : last - begin[0]]:
            if cell < 0:
                continue
            if np.isnan(value):
                _lose(lost, cell, 1)
            else:
                target = cell % n_gpus * n_hours + cell // n_gpus
                added[0, target] += value
                if len(added) == 2:
                    added[1, target] += value * value


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


@compiled
def cell_range(cells: IntArray) -> tuple[int, int]:
    """Return the lowest of some cells and one more than the highest; -1 is none of them."""
    lowest, highest = 2**62, -1
    for cell in cells:
        if cell >= 0:
            lowest, highest = min(lowest, int(cell)), max(highest, int(cell))
    return min(lowest, highest + 1), highest + 1


@compiled
def in_gpu_order(by_hour: DoubleArray, by_gpu: DoubleArray) -> None:
    """Copy cells of shape (k, n_hours, n_gpus) into those of shape (k, n_gpus, n_hours).

    Tile by tile, so that a line of either is in the nearest cache while it is worked on.
    """
    n, n_hours, n_gpus = by_hour.shape
    for k in range(n):
        for hours in range(0, n_hours, _TILE):
            for gpus in range(0, n_gpus, _TILE):
                for hour in range(hours, min(hours + _TILE, n_hours)):
                    some = by_hour[k, hour, gpus : gpus + _TILE]
                    for gpu in range(len(some)):
                        by_gpu[k, gpus + gpu, hour] = some[gpu]
