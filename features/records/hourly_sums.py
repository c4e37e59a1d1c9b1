"""Hourly sums per GPU and per group of peers, from which every longer span is added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import vectorised
from forewarn.features.records.cells import (
    BlockCells,
    CellShape,
    PlacedRows,
    RowCells,
    add_blocks_up,
    add_runs_row_by_row,
    add_runs_up,
    add_up,
    cell_range,
    lie_together,
)
from forewarn.features.records.few_hours import FewHours
from forewarn.features.records.hours import Hours, bucket_length
from forewarn.features.records.peer_groups import Groups
from forewarn.features.records.slices import slice_of
from forewarn.features.records.spans import Spans
from forewarn.features.records.stretches import RunStretch, Stretch
from forewarn.features.records.sum_room import Add, SumRoom
from forewarn.features.records.table import CheckReport, NoNumbers, Records
from forewarn.features.time_units import Nanoseconds

__all__ = ["HourlyGrid", "HourlySums", "Work"]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
CountArray = npt.NDArray[np.int32]
_NONE: DoubleArray = np.zeros((0, 0))
Work = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class HourlySums:
    """Sum, sum of squares and number of readings of one channel, each of shape (n_gpus, n_hours).

    `squares` is empty for a channel that counts. `missing` are the rows without a reading; None for
    a channel that is not read row by row.
    """

    total: DoubleArray
    squares: DoubleArray
    count: CountArray
    missing: FewHours | None = None

    def mean(self) -> npt.NDArray[np.float32]:
        """Return the hourly means; NaN where nothing was read."""
        means = np.empty(self.total.shape, dtype=np.float32)
        _divide(self.total.ravel(), self.count.ravel(), means.ravel())
        return means

    @classmethod
    def of_means(cls, means: DoubleArray) -> HourlySums:
        """Return a channel that has one reading an hour."""
        known = np.isfinite(means)
        total = np.where(known, means, 0.0)
        return cls(total, total * total, known.astype(np.int32))


@dataclass(frozen=True)
class HourlyGrid:
    """The hours in which the counted rows of records lie, and the sums of their channels.

    Attributes
    ----------
    records : Records
    bucket : Nanoseconds
        Of an hour (see `bucket_length`).
    first : int
        Number of the first hour since 1970.
    shape : tuple of int
        Number of GPUs and of hours.
    gpu_after_gpu : bool
        How cells are numbered (`CellShape`).
    cells : RowCells or BlockCells
        Cell of each row of the columns as read.
    first_row : ndarray of shape (n_gpus, n_hours)
        First row of each cell in the columns as read, -1 if it has none.
    row_count : ndarray of shape (n_gpus, n_hours)
        Number of rows of each cell.
    """

    records: Records
    bucket: Nanoseconds
    first: int
    shape: tuple[int, int]
    gpu_after_gpu: bool
    cells: RowCells | BlockCells
    first_row: IntArray
    row_count: CountArray
    _groups: dict[str, Groups] = field(default_factory=dict)
    _rooms: list[SumRoom] = field(default_factory=list, init=False)
    _hours: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, records: Records, hours: Hours | None = None) -> HourlyGrid:
        """Return the grid of the runs that count.

        `hours` are those of all slices of a fleet, if the records are those of one.
        """
        line, bucket = records.line, bucket_length(records.interval)
        first, n_hours = hours or Hours.of(line, records.interval)
        n_gpus, together = len(records.serials), lie_together(line)
        placed = PlacedRows.of(line, CellShape(n_gpus, n_hours, bucket, first, together))
        return cls(records, bucket, first, (n_gpus, n_hours), together, *placed)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.shape[0] * self.shape[1]

    @contextmanager
    def sums(
        self, column: str | Iterable[Stretch], work: Work | None = None
    ) -> Iterator[HourlySums]:
        """Add up one channel; its sums hold until the block ends.

        Large arrays are used again: to get them anew costs more than the sums.

        Parameters
        ----------
        column : str or iterable of Stretch
            Its name; or what is read of it, part after part, with all the rows that count.
        work : callable, optional
            What is counted of the column; without it the channel has a level, and squares too.
        """
        if isinstance(column, str):
            column = self.records.stretches(column, self.low, self.high)
        try:
            room = self._rooms.pop()
        except IndexError:
            room = SumRoom(self.row_count, gpu_after_gpu=self.gpu_after_gpu)
        try:
            yield self._added(room.begun(1 if work else 2), column, work)
        finally:
            self._rooms.append(room)

    def _added(self, room: SumRoom, column: Iterable[Stretch], work: Work | None) -> HourlySums:
        """Add up a channel, and its squares if it has a level."""
        for stretch in column:
            low, high = max(stretch.low, self.low), min(stretch.high, self.high)
            if low < high:
                values = stretch.between(low, high)
                self._add_part(room, values.mapped(work) if work else values)
        total, squares = (*room.whole(), _NONE)[:2]
        missing = FewHours(self.shape[1], *room.lost.by_cell())
        return HourlySums(total, squares, room.lost.n_read, missing)

    def _add_part(self, room: SumRoom, values: Stretch) -> None:
        """Add the values of some rows to the sums of their cells."""
        cells = self.cells.between(values.low, values.high)
        add: Add
        if isinstance(values, RunStretch):
            runs = values.begin, values.value, values.end
            if isinstance(cells, RowCells) and not self.gpu_after_gpu:
                room.add(partial(add_runs_row_by_row, runs, cells.cell))
                return
            add = partial(add_runs_up, runs, *self._blocks)
        elif isinstance(cells, BlockCells):
            add = partial(add_blocks_up, values.values, *cells)
        else:
            add = partial(add_up, values.values, cells.cell)
        if self.gpu_after_gpu:
            room.add(add)
        else:
            room.add_by_hour(self._hours_of(values.low, values.high), add)

    def _hours_of(self, low: int, high: int) -> tuple[int, int]:
        """Return the first hour of some rows as read, and one more than their last."""
        if (low, high) not in self._hours:  # every column comes in the same parts
            first, last = cell_range(self.cells.between(low, high).cell)
            self._hours[low, high] = first // self.shape[0], -(-last // self.shape[0])
        return self._hours[low, high]

    def gpu_of_cells(self, cells: IntArray) -> IntArray:
        """Return the number of the GPU of each cell."""
        n_gpus, n_hours = self.shape
        return cells // n_hours if self.gpu_after_gpu else cells % n_gpus

    @property
    def low(self) -> int:
        """The first row, of the columns as read, that counts."""
        return self.cells.low

    @property
    def high(self) -> int:
        """One more than the last row that counts."""
        return self.cells.high

    @cached_property
    def _blocks(self) -> BlockCells:
        return self.cells.blocks()

    @cached_property
    def visit(self) -> IntArray:
        """The GPUs by slice and serial, the order in which those of a group are added up."""
        return np.argsort(slice_of(self.records.serials), kind="stable")

    def groups(self, name: str) -> Groups:
        """Return the groups of GPUs with the same text, hour by hour."""
        if name not in self._groups:
            texts = self.records.texts[name]
            number = max(1, len(texts.texts))
            self._groups[name] = Groups.of(number, texts.runs, self.first_row, self.visit)
        return self._groups[name]

    def without_rows(self, texts: Iterable[str]) -> HourlyGrid:
        """Return the same hours without what each row takes; the groups of some columns stay."""
        for name in texts:
            self.groups(name)
        return replace(
            self,
            records=_without_rows(self.records),
            cells=RowCells(0, np.zeros(0, dtype=np.int64)),
            first_row=self.first_row[:0].copy(),
        )

    def spans(
        self,
        gpu: npt.NDArray[np.int32],
        end: IntArray,
        life_start: IntArray,
        lengths: Sequence[Nanoseconds],
    ) -> Spans:
        """Return the complete hours in some lengths of time before `end`."""
        stop = np.clip(end // self.bucket - self.first, 0, self.shape[1])
        hours = np.array([max(1, round(length / self.bucket)) for length in lengths])
        begin = stop - hours[:, None]
        born = -(-life_start // self.bucket) - self.first
        start = np.clip(np.maximum(begin, born), 0, stop)
        edges = np.stack([start, (start + stop) // 2, np.broadcast_to(stop, start.shape)])
        line = gpu.astype(np.int64)
        return Spans(line, np.argsort(line, kind="stable"), edges, (begin >= born) & (begin >= 0))


def _without_rows(records: Records) -> Records:
    """Return serials and texts alone."""
    line = records.line.pieces(*np.zeros((3, 0), dtype=np.int64))
    # What was seen counts nulls as they are asked for, and so holds on to the columns.
    return replace(records, columns=NoNumbers(), seen=CheckReport(), line=line)


@vectorised
def _divide(total: DoubleArray, count: CountArray, means: npt.NDArray[np.float32]) -> None:
    for cell in range(len(total)):
        means[cell] = total[cell] / count[cell]
