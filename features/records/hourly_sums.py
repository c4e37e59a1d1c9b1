"""Hourly sums per GPU and per group of peers, from which every longer span is added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled, vectorised
from forewarn.features.records.cells import (
    BlockCells,
    CellShape,
    PlacedRows,
    RowCells,
    add_blocks_up,
    add_runs_up,
    add_up,
    lie_together,
)
from forewarn.features.records.column_files import COLUMNS_AT_ONCE
from forewarn.features.records.hours import Hours, bucket_length
from forewarn.features.records.peer_groups import Groups
from forewarn.features.records.slices import slice_of
from forewarn.features.records.spans import Spans
from forewarn.features.records.stretches import RunStretch, Stretch
from forewarn.features.records.table import CheckReport, NoNumbers, Records
from forewarn.features.threads import in_threads
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

    `squares` is empty for a channel that counts.
    """

    total: DoubleArray
    squares: DoubleArray
    count: CountArray

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
    _sums_of: dict[str, HourlySums] = field(default_factory=dict)
    _group_of: dict[str, CountArray] = field(default_factory=dict)
    _rooms: list[tuple[DoubleArray, CountArray]] = field(default_factory=list, init=False)

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

    def sums(self, channel: str, name: str, work: Work | None = None) -> HourlySums:
        """Add up one channel.

        Parameters
        ----------
        channel : str
            Name of the sums; what was kept under it is not added up again.
        name : str
            Column that is read.
        work : callable, optional
            What is counted of the column; without it the channel has a level, and squares too.
        """
        if channel in self._sums_of:
            return self._sums_of[channel]
        return self.added(self.records.stretch(name, self.low, self.high), work)

    def added(self, stretch: Stretch, work: Work | None = None) -> HourlySums:
        """Add up a column that holds the rows that the grid is about, or what `work` counts."""
        values = stretch.between(self.low, self.high)
        counted = values.mapped(work) if work else values
        room = self._room()
        added, missing = room[0][: 1 if work else 2], room[1]
        added.fill(0.0)
        missing.fill(0)
        if isinstance(counted, RunStretch):
            runs = counted.begin, counted.value, counted.end
            all_read = add_runs_up(runs, *self._blocks, added, missing[0])
        elif isinstance(self.cells, BlockCells):
            all_read = add_blocks_up(counted.values, *self.cells, added, missing[0])
        else:
            all_read = add_up(counted.values, self.cells.cell, added, missing[0])
        sums = self._by_gpu(added)
        count = self.row_count if all_read else self.row_count - self._by_gpu(missing)[0]
        if not self.gpu_after_gpu:  # the sums are copies
            self._rooms.append(room)
        return HourlySums(sums[0], _NONE if work else sums[1], count)

    def _room(self) -> tuple[DoubleArray, CountArray]:
        """Return room for sums and squares, and for what is missing, that nobody else uses.

        Large arrays are used again: to get them anew costs more than the sums.
        """
        try:
            return self._rooms.pop()
        except IndexError:
            return np.empty((2, self.size)), np.empty((1, self.size), dtype=np.int32)

    def keep(self, names: Iterable[str]) -> None:
        """Add up some columns that have a level, and keep their sums: they are looked at often."""
        left = [name for name in names if name not in self._sums_of]
        sums = in_threads(lambda name: self.sums(name, name), left, COLUMNS_AT_ONCE)
        self._sums_of.update(zip(left, sums, strict=True))

    def _by_gpu(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return cells of shape (k, size) as they are numbered as (k, n_gpus, n_hours)."""
        if self.gpu_after_gpu:
            return cells.reshape(-1, *self.shape)
        return np.ascontiguousarray(cells.reshape(-1, *self.shape[::-1]).swapaxes(1, 2))

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

    def group_of(self, name: str) -> CountArray:
        """Return the number of the text that each cell's first row has, shape (n_gpus, n_hours).

        -1 where it is null or there is no row.
        """
        if name not in self._group_of:
            self._group_of[name] = self.records.texts[name].runs.on_grid(self.first_row)
        return self._group_of[name]

    @cached_property
    def visit(self) -> IntArray:
        """The GPUs by slice and serial, the order in which those of a group are added up."""
        return np.argsort(slice_of(self.records.serials), kind="stable")

    def groups(self, name: str) -> Groups:
        """Return the groups of GPUs with the same text, hour by hour."""
        number = max(1, len(self.records.texts[name].texts))
        group = self.group_of(name)
        home = group.max(axis=1)
        elsewhere = (self.row_count > 0) & (group != home[:, None])
        return Groups(number, group, np.where(elsewhere.any(axis=1), -1, home), self.visit)

    def without_rows(self, texts: Iterable[str]) -> HourlyGrid:
        """Return the same hours without what each row takes; the texts of some columns stay."""
        for name in texts:
            self.group_of(name)
        return replace(
            self,
            records=_without_rows(self.records),
            cells=RowCells(0, np.zeros(0, dtype=np.int64)),
            first_row=self.first_row[:0].copy(),
        )

    def last_hour(self, happened: npt.NDArray[np.bool_]) -> IntArray:
        """Return, per GPU and column h, the last hour before h with an event, -1 if none."""
        last = np.full((self.shape[0], self.shape[1] + 1), -1, dtype=np.int64)
        _remember(happened, last)
        return last

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


@compiled
def _remember(happened: npt.NDArray[np.bool_], last: IntArray) -> None:
    for line in range(happened.shape[0]):
        for hour in range(happened.shape[1]):
            last[line, hour + 1] = hour if happened[line, hour] else last[line, hour]
