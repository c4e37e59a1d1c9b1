"""Hourly sums per GPU, from which sums over longer spans are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import (
    BoolArray,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
    SignedIntArray,
)
from forewarn.features.compiled import compiled
from forewarn.features.records.fleet_slices import assign_slices
from forewarn.features.records.lookback_windows import LookbackWindows
from forewarn.features.records.peer_groups import PeerGroups
from forewarn.features.records.record_table import Records
from forewarn.features.time_units import HOUR, Nanoseconds

__all__ = ["HourRange", "HourlyGrid", "HourlySums", "Transform", "bucket_length"]

Transform = Callable[[Float32Array], Float32Array]


def bucket_length(interval: int) -> Nanoseconds:
    """Return the length of an hourly bucket: the fewest whole intervals that cover an hour.

    Examples
    --------
    >>> bucket_length(600 * 10**9) == HOUR
    True
    """
    return Nanoseconds(-(-HOUR // interval) * interval)


class HourRange(NamedTuple):
    """The hours of a grid: the first one, counted from 1970, and their number."""

    first: int
    number: int

    @classmethod
    def covering(cls, time: Int64Array, counted: BoolArray, interval: int) -> HourRange:
        """Return the range of hours of the counted rows, plus one hour.

        Parameters
        ----------
        time, counted : ndarray of shape (n,)
        interval : int
            Nanoseconds between two records of a GPU.
        """
        time = time[counted]
        if not len(time):
            return cls(0, 1)
        bucket = bucket_length(interval)
        first = int(time.min()) // bucket
        return cls(first, int(time.max()) // bucket - first + 2)

    @classmethod
    def joined(cls, parts: Iterable[HourRange]) -> HourRange:
        """Return the range that covers all slices; slices without a counted row are ignored.

        Examples
        --------
        >>> HourRange.joined([HourRange(5, 3), HourRange(0, 1), HourRange(4, 2)])
        HourRange(first=4, number=4)
        """
        held = [hours for hours in parts if hours.number > 1] or [cls(0, 1)]
        first = min(hours.first for hours in held)
        return cls(first, max(hours.first + hours.number for hours in held) - first)


@dataclass(frozen=True, slots=True)
class HourlySums:
    """Sums of a channel by GPU and hour, each of shape (n_gpus, n_hours).

    Attributes
    ----------
    total : ndarray, float64
    squares : ndarray, float64, or None
        None for a channel of counts.
    count : ndarray, int32
        Number of readings; the array `HourlyGrid.row_count` itself if no reading is missing.
    """

    total: Float64Array
    squares: Float64Array | None
    count: Int32Array

    @classmethod
    def from_means(cls, means: Float64Array) -> HourlySums:
        """Return the sums of a channel with at most one reading per hour; NaN is missing."""
        known = np.isfinite(means)
        total = np.where(known, means, 0.0)
        return cls(total, total * total, known.astype(np.int32))


@dataclass(frozen=True)
class HourlyGrid:
    """The assignment of counted records to GPUs and hours.

    Attributes
    ----------
    bucket : Nanoseconds
        Length of an hour (see `bucket_length`).
    first : int
        Number of the first hour since 1970.
    shape : tuple of int
        Number of GPUs and of hours.
    cell : ndarray of shape (n,)
        GPU x hours + hour of each record; -1 if it is not counted.
    row_count : ndarray of shape (n_gpus, n_hours), int32
        Number of counted rows of each cell.
    """

    records: Records
    bucket: Nanoseconds
    first: int
    shape: tuple[int, int]
    cell: SignedIntArray
    row_count: Int32Array
    _groups: dict[str, PeerGroups] = field(default_factory=dict)

    @classmethod
    def from_records(
        cls, records: Records, counted: BoolArray, hours: HourRange | None = None
    ) -> HourlyGrid:
        """Return the grid of the counted rows.

        `hours` is the common range of all slices if the records are one slice of a fleet.
        """
        bucket = bucket_length(records.interval)
        first, n_hours = hours or HourRange.covering(records.time, counted, records.interval)
        shape = len(records.serials), n_hours
        kind = np.int32 if shape[0] * n_hours < 2**31 else np.int64
        cell: SignedIntArray = np.empty(len(records), dtype=kind)
        row_count = np.zeros(shape, dtype=np.int32)
        _find_cells(records.gpu, records.time, counted, (bucket, first), cell, row_count)
        return cls(records, bucket, first, shape, cell, row_count)

    def sums(self, values: Float32Array, work: Transform | None = None) -> HourlySums:
        """Sum values and their squares by cell, or sum the transformed values.

        Parameters
        ----------
        values : ndarray of shape (n,)
            Of all records; NaN where there is no reading.
        work : callable, optional
            Returns what to count for each value; squares are then omitted.
        """
        total = np.zeros(self.shape)
        squares = np.zeros(self.shape if work is None else (0, 0))
        missing = np.zeros(self.shape, dtype=np.int32)
        if work is not None:
            n_missing = _count_up(work(values), self.cell, total.reshape(-1), missing.reshape(-1))
        else:
            outputs = total.reshape(-1), squares.reshape(-1), missing.reshape(-1)
            n_missing = _add_up(values, self.cell, *outputs)
        count = self.row_count - missing if n_missing else self.row_count
        return HourlySums(total, squares if work is None else None, count)

    @cached_property
    def visit(self) -> Int64Array:
        """GPUs ordered by slice and serial: the order in which members of a group are summed."""
        return np.argsort(assign_slices(self.records.serials), kind="stable")

    def groups(self, name: str) -> PeerGroups:
        """Return the groups of GPUs that share a text, by hour."""
        if name not in self._groups:
            column = self.records.texts[name]
            cells = np.full(self.shape, -2, dtype=column.codes.dtype)
            _note_first(column.codes, self.cell, cells.reshape(-1))
            number = max(1, len(column.texts))
            self._groups[name] = PeerGroups.from_cells(number, cells, self.visit)
        return self._groups[name]

    def without_rows(self, texts: Iterable[str]) -> HourlyGrid:
        """Return the grid without the cells of rows; the groups of the given columns are kept."""
        for name in texts:
            self.groups(name)
        none = self.records.without_numbers().select(np.zeros(0, dtype=np.int64))
        return replace(self, records=none, cell=self.cell[:0].copy())

    def spans(
        self,
        gpu: Int32Array,
        end: Int64Array,
        life_start: Int64Array,
        lengths: Sequence[Nanoseconds],
    ) -> LookbackWindows:
        """Return the complete hours of lookback windows of some lengths before `end`."""
        stop = np.clip(end // self.bucket - self.first, 0, self.shape[1])
        hours = np.array([max(1, round(length / self.bucket)) for length in lengths])
        begin = stop - hours[:, None]
        born = -(-life_start // self.bucket) - self.first
        start = np.clip(np.maximum(begin, born), 0, stop)
        edges = np.stack([start, (start + stop) // 2, np.broadcast_to(stop, start.shape)])
        line = gpu.astype(np.int64)
        return LookbackWindows(
            line, np.argsort(line, kind="stable"), edges, (begin >= born) & (begin >= 0)
        )


@compiled
def _find_cells(
    gpu: Int32Array,
    time: Int64Array,
    counted: BoolArray,
    bucket_and_first: tuple[int, int],
    cell: SignedIntArray,
    row_count: Int32Array,
) -> None:
    bucket, first = bucket_and_first
    hour, begin = 0, np.int64(first) * bucket
    for row in range(len(gpu)):
        if not counted[row]:
            cell[row] = -1
            continue
        if not begin <= time[row] < begin + bucket:  # a division is slower than the comparison
            hour = time[row] // bucket - first
            begin = (first + hour) * bucket
        cell[row] = gpu[row] * np.int64(row_count.shape[1]) + hour
        row_count[gpu[row], hour] += 1


@compiled
def _note_first(codes: SignedIntArray, cell: SignedIntArray, cells: SignedIntArray) -> None:
    """Write the code of the first row of each cell into `cells`; -2 means no row."""
    for row in range(len(cell)):
        if cell[row] >= 0 and cells[cell[row]] == -2:
            cells[cell[row]] = codes[row]


@compiled
def _add_up(
    values: Float32Array,
    cell: SignedIntArray,
    total: Float64Array,
    squares: Float64Array,
    missing: Int32Array,
) -> int:
    """Sum values and squares by cell; return the number of missing values.

    Rows of a cell are consecutive.
    """
    n_missing, own = 0, -1
    added = square = 0.0
    for row in range(len(values)):
        if cell[row] < 0:
            continue
        if cell[row] != own:
            if own >= 0:
                total[own], squares[own] = added, square
            own = cell[row]
            added = square = 0.0
        value = np.float64(values[row])
        if np.isnan(value):
            missing[own] += 1
            n_missing += 1
        else:
            added += value
            square += value * value
    if own >= 0:
        total[own], squares[own] = added, square
    return n_missing


@compiled
def _count_up(
    values: Float32Array, cell: SignedIntArray, total: Float64Array, missing: Int32Array
) -> int:
    """Sum counts, which are mostly 0, by cell; return the number of missing values."""
    n_missing = 0
    for row in range(len(values)):
        if values[row] != 0 and cell[row] >= 0:
            if np.isnan(values[row]):
                missing[cell[row]] += 1
                n_missing += 1
            else:
                total[cell[row]] += np.float64(values[row])
    return n_missing
