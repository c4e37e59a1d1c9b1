"""Rows that count, placed in cells: GPU by hour."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.cells import BlockCells, CellShape, RowCells
from forewarn.features.records.line import Line
from forewarn.features.threads import in_parallel, in_threads, n_threads

__all__ = ["DayByDay", "PlacedRows", "lie_together"]

IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]


class DayByDay(NamedTuple):
    """Rows as read in stretches that have no hour in common, such as those of days.

    Attributes
    ----------
    begin : list of int
        First row of each, and one more than the last row.
    hours : list of (int, int)
        Of each the first hour, and one more than the last.
    """

    begin: list[int]
    hours: list[tuple[int, int]]

    @classmethod
    def of_runs(
        cls, row: IntArray, first: IntArray, last: IntArray, n_hours: int, end: int
    ) -> tuple[DayByDay, IntArray]:
        """Part rows where all hours of those before have ended; return the first run of each, too.

        Parameters
        ----------
        row : ndarray of shape (n,)
            First row of each run, rising.
        first, last : ndarray of shape (n,)
            Hours of its first and of its last row.
        n_hours : int
        end : int
            One more than the last row.

        Examples
        --------
        >>> row, first, last = np.array([[0, 9, 20, 29], [0, 3, 24, 24], [23, 20, 47, 24]])
        >>> days, run = DayByDay.of_runs(row, first, last, 48, end=30)
        >>> days.begin, days.hours, run.tolist()
        ([0, 20, 30], [(0, 24), (24, 48)], [0, 2, 4])
        """
        if not len(row):
            return cls([], []), np.zeros(1, dtype=np.int64)
        to_come = np.minimum.accumulate(first[::-1])[::-1]
        passed = np.maximum.accumulate(last)
        run = np.append(0, np.flatnonzero(to_come[1:] > passed[:-1]) + 1)
        hours = zip(to_come[run].tolist(), [*to_come[run[1:]].tolist(), n_hours], strict=True)
        return cls([*row[run].tolist(), end], list(hours)), np.append(run, len(row))

    def of_least(self, n_rows: int) -> DayByDay:
        """Return stretches of at least so many rows, the last one aside."""
        begin, hours = self.begin[:1], list[tuple[int, int]]()
        for end, span in zip(self.begin[1:], self.hours, strict=True):
            open_since = hours.pop()[0] if len(hours) == len(begin) else span[0]
            hours.append((open_since, span[1]))
            if end - begin[-1] >= n_rows or end == self.begin[-1]:
                begin.append(end)
        return DayByDay(begin, hours)


class PlacedRows(NamedTuple):
    """The rows of records that count, placed in cells.

    Attributes
    ----------
    cells : RowCells or BlockCells
    first_row : ndarray of shape (n_gpus, n_hours)
        First row of each cell in the columns as read, -1 if it has none.
    row_count : ndarray of shape (n_gpus, n_hours), int32
    days : DayByDay
        One stretch where rows are scattered.
    """

    cells: RowCells | BlockCells
    first_row: IntArray
    row_count: CountArray
    days: DayByDay

    @classmethod
    def of(cls, line: Line, shape: CellShape) -> PlacedRows:
        """Place the runs that count."""
        kind = np.int32 if shape.size < 2**31 else np.int64
        low, high = line.extent_of(line.counted)
        first_row = np.full(shape[:2], -1, dtype=np.int32 if high < 2**31 else np.int64)
        count = np.full(shape[:2], 0, dtype=np.int32)
        if not len(line.rows):
            blocks, days = _blocks_of(line, shape, kind, first_row, count)
            return cls(blocks, first_row, count, days)
        cell: IntArray = np.empty(high - low, kind)
        in_parallel(lambda first, last: cell[first:last].fill(-1), len(cell))

        def fill_in(runs: tuple[int, int]) -> None:
            _place_rows(line, runs, shape, shape.steps, low, (cell, first_row, count))

        # Each thread has GPUs of its own, and so cells of its own.
        cuts = line.run_bounds(shape.n_gpus)[
            np.arange(n_threads() + 1) * shape.n_gpus // n_threads()
        ]
        in_threads(fill_in, pairwise(cuts.tolist()))
        days = DayByDay([low, high], [(0, shape.n_hours)]) if low < high else DayByDay([], [])
        return cls(RowCells(low, cell), first_row, count, days)


def _blocks_of(
    line: Line, shape: CellShape, kind: type, first_row: IntArray, count: CountArray
) -> tuple[BlockCells, DayByDay]:
    """Return the blocks of the runs that count, in the order in which they were read."""
    runs = np.flatnonzero(line.counted)
    runs = runs[np.argsort(line.order[runs], kind="stable")]
    row, end = line.order[runs], line.order[runs] + line.n_rows[runs]
    first = line.time[runs] // shape.bucket - shape.first
    last = line.last_time[runs] // shape.bucket - shape.first
    days, day = DayByDay.of_runs(row, first, last, shape.n_hours, int(end.max(initial=0)))
    # A block for each hour and for what lies between runs; wide steps may leave hours out.
    before = np.append(row[:1], end[:-1])
    n_blocks = np.minimum(last - first + 1, line.n_rows[runs]) + (row != before)
    most, half = int(n_blocks.sum()), day[len(day) // 2]
    begin: IntArray = np.empty(most + 1, np.int32 if end.max(initial=0) < 2**31 else np.int64)
    cell: IntArray = np.empty(most, dtype=kind)

    def put(low: int, high: int) -> slice:
        start = int(n_blocks[:low].sum())
        room = begin[start:], cell[start:], first_row, count
        n = _place_runs(line, runs[low:high], before[low:high], shape, shape.steps, room)
        return slice(start, start + n)

    # Each thread has days of its own, and so cells of its own; the first one ends where the next
    # one begins.
    parts = [put(0, len(runs))] if half in (0, len(runs)) else []
    parts = parts or in_threads(lambda part: put(*part), [(0, half), (half, len(runs))])
    if parts[0].stop != parts[-1].start and len(parts) > 1:
        begin = np.concatenate([begin[parts[0]], begin[parts[1].start : parts[1].stop + 1]])
        return BlockCells(begin, np.concatenate([cell[part] for part in parts])), days
    n = parts[-1].stop
    return BlockCells(begin[: n + 1], cell[:n]), days


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
    before: IntArray,
    shape: CellShape,
    steps: tuple[int, int],
    room: tuple[IntArray, IntArray, IntArray, CountArray],
) -> int:
    """Put first row and cell of each block into two arrays and return how many there are.

    `before` is where the run before each of them ended.
    """
    begin, cell, first_row, count = room
    n, end = 0, 0
    for number in range(len(runs)):
        run, end = runs[number], before[number]
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
