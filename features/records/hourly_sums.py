"""Hourly sums per GPU and per group of peers, from which every longer span is added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.cell_sums import add_blocks_up, add_up
from forewarn.features.records.cells import BlockCells, CellShape, RowCells, cell_range
from forewarn.features.records.few_hours import FewHours
from forewarn.features.records.hours import Hours, bucket_length
from forewarn.features.records.peer_groups import Groups
from forewarn.features.records.placed_rows import DayByDay, PlacedRows, lie_together
from forewarn.features.records.slices import slice_of
from forewarn.features.records.spans import Spans
from forewarn.features.records.stretches import Stretch
from forewarn.features.records.sum_room import Add, SumRoom
from forewarn.features.records.table import CheckReport, NoNumbers, Records
from forewarn.features.time_units import Nanoseconds

__all__ = ["HourBlock", "HourlyCounts", "HourlyGrid", "HourlySums", "Work"]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
CountArray = npt.NDArray[np.int32]
_CELLS_AT_ONCE = 2**18  # some 4 MiB of sums, which a cache holds
Work = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


class HourBlock(NamedTuple):
    """What a level adds up to in some hours of all GPUs.

    Attributes
    ----------
    first : int
        The first of the hours.
    total, squares : ndarray of shape (n_gpus, n), float64
    lost : ndarray of shape (m,)
        Cells that have rows without a reading, GPU after GPU among all hours.
    n_lost : ndarray of shape (m,), int32
        How many rows those are.
    """

    first: int
    total: DoubleArray
    squares: DoubleArray
    lost: IntArray
    n_lost: CountArray

    @classmethod
    def of_means(cls, first: int, means: DoubleArray) -> tuple[HourBlock, BoolArray]:
        """Return hours of a channel that has one reading in each, and where it has one."""
        known = np.isfinite(means)
        total = np.where(known, means, 0.0)
        none = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32)
        return cls(first, total, total * total, *none), known

    @property
    def hours(self) -> slice:
        """Which hours those are."""
        return slice(self.first, self.first + self.total.shape[1])


@dataclass(frozen=True, slots=True)
class HourlySums:
    """Sum, sum of squares and number of readings of a level, each of shape (n_gpus, n_hours)."""

    total: DoubleArray
    squares: DoubleArray
    count: CountArray


@dataclass(frozen=True, slots=True)
class HourlyCounts:
    """What a channel that counts adds up to in the hours of GPUs.

    Nearly all hours hold 0, so that whatever is made of the others costs next to nothing.

    Attributes
    ----------
    total : FewHours
    missing : FewHours
        The rows without a reading.
    """

    total: FewHours
    missing: FewHours


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
    days : DayByDay
        Stretches of rows that have no hour in common.
    """

    records: Records
    bucket: Nanoseconds
    first: int
    shape: tuple[int, int]
    gpu_after_gpu: bool
    cells: RowCells | BlockCells
    first_row: IntArray
    row_count: CountArray
    days: DayByDay
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

    def blocks(self, column: str | Iterable[Stretch]) -> Iterator[HourBlock]:
        """Add up a level and its squares; yield some hours after the others.

        What lies by date is added up date after date, so that the sums are still in a cache when
        something is made of them. A block holds until the next one is asked for.

        Parameters
        ----------
        column : str or iterable of Stretch
            Its name; or what is read of it, part after part, with all the rows that count.
        """
        for room, hours in self._added(column, SumRoom.add, None):
            total, squares = room.levels()
            yield HourBlock(hours[0], total, squares, *room.lost())

    def counts(self, column: str | Iterable[Stretch], work: Work) -> HourlyCounts:
        """Add up what `work` counts of each value of a column; as `blocks`."""
        counted, lost = [], []
        for room, _ in self._added(column, SumRoom.count, work):
            counted.append(room.counts())
            lost.append(room.lost())
        return HourlyCounts(*(FewHours.of_cells(self.shape[1], few) for few in (counted, lost)))

    def sums(self, column: str | Iterable[Stretch]) -> HourlySums:
        """Add up a level and its squares, all hours at once; as `blocks`."""
        total, squares = np.zeros((2, *self.shape))
        lost = []
        for block in self.blocks(column):
            total[:, block.hours], squares[:, block.hours] = block.total, block.squares
            lost.append((block.lost, block.n_lost))
        missing = FewHours.of_cells(self.shape[1], lost)
        count = self.row_count.copy()
        count.reshape(-1)[missing.cell] -= missing.value
        return HourlySums(total, squares, count)

    def _added(
        self,
        column: str | Iterable[Stretch],
        put: Callable[[SumRoom, Add], None],
        work: Work | None,
    ) -> Iterator[tuple[SumRoom, tuple[int, int]]]:
        """Yield a room when all rows of some hours were put there, and which hours those are."""
        rows, hours = self._parts
        with self._room() as room:
            for number, values in self._that_count(column, rows):
                if values.low == rows[number]:
                    room.begin(hours[number])
                add = self._adding(values.mapped(work) if work else values)
                if work or self.gpu_after_gpu:
                    put(room, add)
                else:
                    room.add_by_hour(self._hours_of(values.low, values.high), add)
                if values.high == rows[number + 1]:
                    yield room, hours[number]

    @contextmanager
    def _room(self) -> Iterator[SumRoom]:
        """Large arrays are used again: to get them anew costs more than the sums."""
        try:
            room = self._rooms.pop()
        except IndexError:
            n_gpus, n_hours = self.shape
            shape = CellShape(n_gpus, n_hours, self.bucket, self.first, self.gpu_after_gpu)
            room = SumRoom(shape)
        try:
            yield room
        finally:
            self._rooms.append(room)

    def _that_count(
        self, column: str | Iterable[Stretch], rows: Sequence[int]
    ) -> Iterator[tuple[int, Stretch]]:
        """Yield what is read of a column, part after part, cut at some rows.

        Yields
        ------
        int
            The number of the row at which it was cut last.
        Stretch
        """
        if isinstance(column, str):
            column = self.records.stretches(column, self.low, self.high)
        number = 0
        for stretch in column:
            low, high = max(stretch.low, self.low), min(stretch.high, self.high)
            while low < high:
                end = min(high, rows[number + 1])
                yield number, stretch.between(low, end)
                number += end == rows[number + 1]
                low = end

    def _adding(self, values: Stretch) -> Add:
        """Return what adds values to the sums of their cells."""
        cells = self.cells.between(values.low, values.high)
        if isinstance(cells, BlockCells):
            return partial(add_blocks_up, values.values, *cells)
        return partial(add_up, values.values, cells.cell)

    def _hours_of(self, low: int, high: int) -> tuple[int, int]:
        """Return the first hour of some rows as read, and one more than their last."""
        if (low, high) not in self._hours:  # every column comes in the same parts
            first, last = cell_range(self.cells.between(low, high).cell)
            self._hours[low, high] = first // self.shape[0], -(-last // self.shape[0])
        return self._hours[low, high]

    @cached_property
    def _parts(self) -> DayByDay:
        """The stretches of rows that are added up one after another."""
        if not self.gpu_after_gpu:
            return DayByDay([self.low, self.high], [(0, self.shape[1])])
        cells_a_row = self.size / max(1, self.high - self.low)
        return self.days.of_least(round(_CELLS_AT_ONCE / max(cells_a_row, 1e-9)))

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
