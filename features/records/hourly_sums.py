"""Hourly sums per GPU and per group of peers, from which every longer span is added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.peer_groups import Groups, added_by_group
from forewarn.features.records.spans import Spans
from forewarn.features.records.table import Records
from forewarn.features.threads import in_threads, n_threads
from forewarn.features.time_units import HOUR, Nanoseconds

__all__ = [
    "HourlyGrid",
    "HourlySums",
    "Work",
    "bucket_length",
]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]
_NONE: DoubleArray = np.zeros((0, 0))
Work = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


def bucket_length(interval: int) -> Nanoseconds:
    """Return the length of an "hour": the least number of whole intervals that fills one.

    Examples
    --------
    >>> bucket_length(600 * 10**9) == HOUR
    True
    """
    return Nanoseconds(-(-HOUR // interval) * interval)


@dataclass(frozen=True, slots=True)
class HourlySums:
    """Sum, sum of squares and number of readings of one channel, each of shape (n_gpus, n_hours).

    `squares` is empty for a channel that counts.
    """

    total: DoubleArray
    squares: DoubleArray
    count: CountArray

    def mean(self) -> DoubleArray:
        """Return the hourly means; NaN where nothing was read."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.total / self.count

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
    low : int
        First row, of the columns as read, that belongs to the records.
    cell_as_read : ndarray of shape (m,)
        Hour x GPUs + GPU number of each row of the columns as read, from `low` on; -1 for rows
        that do not count. Files come by time: so what is added one after another lies together.
    first_row : ndarray of shape (n_gpus, n_hours)
        First row of each cell in the columns as read, -1 if it has none.
    row_count : ndarray of shape (n_gpus, n_hours)
        Number of rows of each cell.
    """

    records: Records
    bucket: Nanoseconds
    first: int
    shape: tuple[int, int]
    low: int
    cell_as_read: IntArray
    first_row: IntArray
    row_count: CountArray
    _sums_of: dict[str, HourlySums] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Records, rows: IntArray) -> HourlyGrid:
        """Return the grid of the rows that count."""
        bucket = bucket_length(records.interval)
        keys = (records.order, records.time)
        (low, high), (start, end) = in_threads(lambda values: _extent(values, rows), keys)
        first = start // bucket
        n_hours = (end - 1) // bucket - first + 2 if len(rows) else 1
        shape = (len(records.serials), n_hours)
        size = shape[0] * shape[1]
        cell_as_read: IntArray = np.full(high - low, -1, np.int32 if size < 2**31 else np.int64)
        first_row, count = np.full(shape, -1, dtype=np.int64), np.full(shape, 0, np.int32)
        where = cell_as_read, first_row, count

        def fill_cells(part: IntArray) -> None:
            _place_rows(
                (records.order, records.gpu, records.time), part, (bucket, first, low), *where
            )

        # Each thread has GPUs of its own, and so cells of its own.
        cuts = records.gpu_bounds()[np.arange(1, n_threads()) * shape[0] // n_threads()]
        in_threads(fill_cells, np.split(rows, np.searchsorted(rows, cuts)))
        return cls(records, bucket, first, shape, low, cell_as_read, first_row, count)

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
        values = self.columns_as_read(name)
        counted = work(values) if work else values
        added = np.full((1 if work else 2, self.size), 0.0)
        missing = np.full(self.size, 0, dtype=np.int32)
        _add_up(counted, self.cell_as_read, added, missing)
        # Together, for the sake of huge pages: small ones cost more than the sums.
        sums = np.empty((len(added), *self.shape))
        for cells, sum_ in zip(added, sums, strict=True):
            sum_[:] = self._by_gpu(cells)
        count = self.row_count - self._by_gpu(missing) if missing.any() else self.row_count
        return HourlySums(sums[0], _NONE if work else sums[1], count)

    def keep(self, names: Iterable[str]) -> None:
        """Add up some columns that have a level, and keep their sums: they are looked at often."""
        left = [name for name in names if name not in self._sums_of]
        sums = in_threads(lambda name: self.sums(name, name), left)
        self._sums_of.update(zip(left, sums, strict=True))

    def _by_gpu(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """View cells that lie hour after hour as GPU after GPU."""
        return cells.reshape(self.shape[::-1]).T

    def columns_as_read(self, name: str) -> npt.NDArray[np.float32]:
        """Return the stretch of a column that `cell_as_read` is about."""
        values = self.records.columns[name][self.low : self.low + len(self.cell_as_read)]
        if name in self.records.counters and len(self.records.reborn):
            values, places = values.copy(), self.records.reborn - self.low
            values[places[(places >= 0) & (places < len(values))]] = np.nan
        return values

    def group_of(self, name: str) -> IntArray:
        """Return the number of the text that each cell's first row has, shape (n_gpus, n_hours).

        -1 where it is null or there is no row.
        """
        codes = self.records.texts[name].codes
        group = np.full(self.shape, -1, dtype=np.int64)
        _look_up(codes, self.first_row, group)
        return group

    def by_group(self, hourly: DoubleArray | CountArray, groups: Groups) -> DoubleArray:
        """Add the cells of each group up by hour, shape (n_groups, n_hours)."""
        return added_by_group(hourly, groups.group, groups.home, groups.number)

    def groups(self, name: str) -> Groups:
        """Return the groups of GPUs with the same text, hour by hour."""
        number = max(1, len(self.records.texts[name].texts))
        group = self.group_of(name)
        home = group.max(axis=1)
        elsewhere = (self.row_count > 0) & (group != home[:, None])
        return Groups(number, group, np.where(elsewhere.any(axis=1), -1, home))

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


@compiled
def _remember(happened: npt.NDArray[np.bool_], last: IntArray) -> None:
    for line in range(happened.shape[0]):
        for hour in range(happened.shape[1]):
            last[line, hour + 1] = hour if happened[line, hour] else last[line, hour]


@compiled
def _extent(values: IntArray, rows: IntArray) -> tuple[int, int]:
    """Return the least of some values and one more than the greatest; 0, 0 if there is none."""
    if not len(rows):
        return 0, 0
    low = high = values[rows[0]]
    for row in rows:
        low, high = min(low, values[row]), max(high, values[row])
    return low, high + 1


@compiled
def _place_rows(
    records: tuple[IntArray, npt.NDArray[np.int32], IntArray],
    rows: IntArray,
    grid: tuple[int, int, int],
    cell_as_read: IntArray,
    first_row: IntArray,
    count: CountArray,
) -> None:
    """Fill in the cell of each row as read, and the first row and the number of rows of each."""
    order, gpu, time = records
    bucket, first, low = grid
    hour, begin = -1, (first - 1) * bucket
    for row in rows:
        number = gpu[row]
        if not begin <= time[row] < begin + bucket:  # a division takes longer than all the rest
            hour = time[row] // bucket - first
            begin = (first + hour) * bucket
        cell_as_read[order[row] - low] = hour * len(count) + number
        if first_row[number, hour] < 0:
            first_row[number, hour] = order[row]
        count[number, hour] += 1


@compiled
def _look_up(codes: npt.NDArray[np.int32], row: IntArray, group: IntArray) -> None:
    """Put the code of each row that there is in its place."""
    for gpu in range(row.shape[0]):
        for hour in range(row.shape[1]):
            if row[gpu, hour] >= 0:
                group[gpu, hour] = codes[row[gpu, hour]]


@compiled
def _add_up(
    values: npt.NDArray[np.float32],
    cell_as_read: IntArray,
    added: DoubleArray,
    missing: CountArray,
) -> None:
    """Add values up by cell: their sum, how many are missing and, if there is room, squares."""
    for row in range(len(values)):
        cell = cell_as_read[row]
        if cell < 0:
            continue
        value = np.float64(values[row])
        if np.isnan(value):
            missing[cell] += 1
        else:
            added[0, cell] += value
            if len(added) == 2:
                added[1, cell] += value * value
