"""Hourly sums per GPU and per group of peers, from which every longer span is added up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from forewarn.features.records import HOUR, Records

__all__ = [
    "Groups",
    "HourlyGrid",
    "HourlySums",
    "Spans",
    "Work",
    "bucket_length",
    "running",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Work = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


def bucket_length(interval: int) -> int:
    """Return the length of an "hour": the least number of whole intervals that fills one.

    Examples
    --------
    >>> bucket_length(600 * 10**9) == HOUR
    True
    """
    return -(-HOUR // interval) * interval


@dataclass(frozen=True, slots=True)
class HourlySums:
    """Sum, sum of squares and number of readings of one channel, each of shape (n_gpus, n_hours).

    `squares` is empty for a channel that counts.
    """

    total: FloatArray
    squares: FloatArray
    count: FloatArray

    def mean(self) -> FloatArray:
        """Return the hourly means; NaN where nothing was read."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count

    @classmethod
    def of_means(cls, means: FloatArray) -> HourlySums:
        """Return a channel that has one reading an hour."""
        there = np.isfinite(means)
        total = np.where(there, means, 0.0)
        return cls(total, total * total, there.astype(np.float64))


@dataclass(frozen=True, slots=True)
class Spans:
    """For n instances the hours [start, end) to add up: complete, and of the GPU's life.

    `line`, `start` and `end` are places in a running sum; `known` is False where the history is
    shorter than the span.
    """

    line: IntArray
    start: IntArray
    end: IntArray
    known: npt.NDArray[np.bool_]

    def sums(self, running: FloatArray) -> FloatArray:
        """Return what lies between start and end, shape (n,)."""
        return running[self.line, self.end] - running[self.line, self.start]

    def halves(self) -> tuple[Spans, Spans]:
        """Return the earlier and the later half."""
        middle = (self.start + self.end) // 2
        return (
            Spans(self.line, self.start, middle, self.known),
            Spans(self.line, middle, self.end, self.known),
        )


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of peers on a grid.

    Attributes
    ----------
    number : int
    group : ndarray of shape (n_gpus, n_hours)
        Group of each cell, -1 where it has none.
    place : ndarray of shape (n_gpus x n_hours,)
        Where each cell is added up.
    home : ndarray of shape (n_gpus,)
        Group that the GPU was in all the time, -1 if there is none.
    """

    number: int
    group: IntArray
    place: IntArray
    home: IntArray


@dataclass(frozen=True)
class HourlyGrid:
    """Where the counted rows of records lie in hours, and the sums of their channels.

    Attributes
    ----------
    records : Records
    rows : ndarray of shape (n,)
        Rows that count.
    bucket : int
        Nanoseconds of an hour (see `bucket_length`).
    first : int
        Number of the first hour since 1970.
    shape : tuple of int
        Number of GPUs and of hours.
    cell : ndarray of shape (n,)
        GPU number x hours + hour of each row that counts.
    low : int
        First row, of the columns as read, that belongs to the records.
    cell_as_read : ndarray of shape (m,)
        Cell of each row of the columns as read, from `low` on; one past the last cell for rows
        that do not count.
    """

    records: Records
    rows: IntArray
    bucket: int
    first: int
    shape: tuple[int, int]
    cell: IntArray
    low: int
    cell_as_read: IntArray
    _sums: dict[str, HourlySums] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Records, rows: IntArray) -> HourlyGrid:
        """Return the grid of the rows that count."""
        bucket = bucket_length(records.interval)
        hour = records.time[rows] // bucket
        first = int(hour.min()) if len(hour) else 0
        n_hours = int(hour.max()) - first + 2 if len(hour) else 1
        shape = (len(records.serials), n_hours)
        cell = records.gpu[rows].astype(np.int64) * n_hours + (hour - first)
        order = records.order[rows]
        low, high = (int(order.min()), int(order.max()) + 1) if len(order) else (0, 0)
        cell_as_read = np.full(high - low, shape[0] * shape[1], dtype=np.int64)
        cell_as_read[order - low] = cell
        return cls(records, rows, bucket, first, shape, cell, low, cell_as_read)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self.shape[0] * self.shape[1]

    def sums(self, channel: str, name: str, work: Work | None = None) -> HourlySums:
        """Add up one channel.

        Parameters
        ----------
        channel : str
            Name of the sums; asked for again they are not added up again.
        name : str
            Column that is read.
        work : callable, optional
            What is counted of the column; without it the channel has a level, and squares too.
        """
        if channel not in self._sums:
            if name in self.records.increases:
                values, cell = self.records.increases[name][self.rows], self.cell
            else:
                values = self.columns_as_read(name)
                values, cell = work(values) if work else values, self.cell_as_read
            self._sums[channel] = self._added(values, cell, squared=work is None)
        return self._sums[channel]

    def columns_as_read(self, name: str) -> npt.NDArray[np.float32]:
        """Return the stretch of a column that `cell_as_read` is about."""
        return self.records.columns[name][self.low : self.low + len(self.cell_as_read)]

    def _added(
        self, values: npt.NDArray[np.float32], cell: IntArray, *, squared: bool
    ) -> HourlySums:
        """Add values up by cell; null values count nowhere."""
        missing = np.flatnonzero(np.isnan(values))
        precise = values.astype(np.float64)
        precise[missing] = 0.0
        total = self._dense(cell, precise)
        squares = np.zeros((0, 0))
        if squared:
            squares = self._dense(cell, np.multiply(precise, precise, out=precise))
        count = self.row_count
        if len(missing):
            count = count - self._dense(cell[missing], None)
        return HourlySums(total, squares, count)

    @cached_property
    def row_count(self) -> FloatArray:
        """Number of rows of each cell."""
        return self._dense(self.cell, None)

    def _dense(self, cell: IntArray, weights: FloatArray | None) -> FloatArray:
        added = np.bincount(cell, weights, minlength=self.size + 1)[: self.size]
        return added.reshape(self.shape).astype(np.float64, copy=False)

    def group_of(self, name: str) -> IntArray:
        """Return the number of the text that each cell's first row has, shape (n_gpus, n_hours).

        -1 where it is null or there is no row.
        """
        starts = np.flatnonzero(np.diff(self.cell, prepend=-1))
        group = np.full(self.size, -1, dtype=np.int64)
        group[self.cell[starts]] = self.records.codes(name, self.rows[starts])
        return group.reshape(self.shape)

    def by_group(self, hourly: FloatArray, groups: Groups) -> FloatArray:
        """Add the cells of each group up by hour, shape (n_groups, n_hours)."""
        size = groups.number * self.shape[1]
        added = np.bincount(groups.place, hourly.ravel(), minlength=size + 1)[:size]
        return added.astype(np.float64, copy=False).reshape(groups.number, self.shape[1])

    def groups(self, name: str) -> Groups:
        """Return the groups of GPUs with the same text, hour by hour."""
        number = max(1, len(self.records.texts[name].texts))
        group, n_hours = self.group_of(name), self.shape[1]
        place = np.where(group < 0, number * n_hours, group * n_hours + np.arange(n_hours))
        home = group.max(axis=1)
        elsewhere = (self.row_count > 0) & (group != home[:, None])
        return Groups(number, group, place.ravel(), np.where(elsewhere.any(axis=1), -1, home))

    def last_hour(self, happened: npt.NDArray[np.bool_]) -> IntArray:
        """Return, per GPU and column h, the last hour before h with an event, -1 if none."""
        hours = np.where(happened, np.arange(self.shape[1], dtype=np.int64), -1)
        last = np.full((self.shape[0], self.shape[1] + 1), -1, dtype=np.int64)
        np.maximum.accumulate(hours, axis=1, out=last[:, 1:])
        return last

    def spans(
        self, gpu: npt.NDArray[np.int32], end: IntArray, life_start: IntArray, length: int
    ) -> Spans:
        """Return the complete hours in the `length` nanoseconds before `end`."""
        stop = np.clip(end // self.bucket - self.first, 0, self.shape[1])
        wanted = stop - max(1, round(length / self.bucket))
        born = -(-life_start // self.bucket) - self.first
        start = np.clip(np.maximum(wanted, born), 0, stop)
        return Spans(gpu.astype(np.int64), start, stop, (wanted >= born) & (wanted >= 0))


def running(hourly: FloatArray) -> FloatArray:
    """Return running sums over hours with a leading 0, shape (n, n_hours + 1).

    Each line has its own, so that no rounding carries over from the future of another GPU.
    """
    total = np.zeros((hourly.shape[0], hourly.shape[1] + 1))
    np.cumsum(hourly, axis=1, out=total[:, 1:])
    return total
