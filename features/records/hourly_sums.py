"""Hourly sums per GPU, from which every longer span is added up."""

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
    """Return the length of an "hour": the least number of whole intervals that fills one.

    Examples
    --------
    >>> bucket_length(600 * 10**9) == HOUR
    True
    """
    return Nanoseconds(-(-HOUR // interval) * interval)


class HourRange(NamedTuple):
    """The hours of a grid: the number of the first one since 1970, and how many there are."""

    first: int
    number: int

    @classmethod
    def covering(cls, time: Int64Array, counted: BoolArray, interval: int) -> HourRange:
        """Return the hours that hold the rows that count, and one more.

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
        """Return the hours of all slices; those of one without a row that counts are none.

        Examples
        --------
        >>> Hours.joined([Hours(5, 3), Hours(0, 1), Hours(4, 2)])
        Hours(first=4, number=4)
        """
        held = [hours for hours in parts if hours.number > 1] or [cls(0, 1)]
        first = min(hours.first for hours in held)
        return cls(first, max(hours.first + hours.number for hours in held) - first)


@dataclass(frozen=True, slots=True)
class HourlySums:
    """What a channel adds up to in the hours of GPUs, each of shape (n_gpus, n_hours).

    Attributes
    ----------
    total : ndarray, float64
    squares : ndarray, float64, or None
        None for a channel that counts.
    count : ndarray, int32
        Readings; `HourlyGrid.row_count` itself where each row has one.
    """

    total: Float64Array
    squares: Float64Array | None
    count: Int32Array

    @classmethod
    def from_means(cls, means: Float64Array) -> HourlySums:
        """Return the sums of a channel that has one reading in each hour, or none (NaN)."""
        known = np.isfinite(means)
        total = np.where(known, means, 0.0)
        return cls(total, total * total, known.astype(np.int32))


@dataclass(frozen=True)
class HourlyGrid:
    """The hours in which the rows of records lie that count.

    Attributes
    ----------
    bucket : Nanoseconds
        Of an hour (see `bucket_length`).
    first : int
        Number of the first hour since 1970.
    shape : tuple of int
        Number of GPUs and of hours.
    cell : ndarray of shape (n,)
        GPU x hours + hour of each record, -1 where it does not count.
    row_count : ndarray of shape (n_gpus, n_hours), int32
        Number of rows of each cell that count.
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
        """Return the grid of the rows that count.

        `hours` are those of all slices of a fleet, if the records are those of one.
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
        """Add up a level and its squares, or what `work` counts of each value.

        Parameters
        ----------
        values : ndarray of shape (n,)
            Of all records; NaN where there is no reading.
        work : callable, optional
        """
        total = np.zeros(self.shape)
        squares = np.zeros(self.shape if work is None else (0, 0))
        missing = np.zeros(self.shape, dtype=np.int32)
        if work is not None:
            n_missing = _count_up(work(values), self.cell, total.reshape(-1), missing.reshape(-1))
        else:
            rooms = total.reshape(-1), squares.reshape(-1), missing.reshape(-1)
            n_missing = _add_up(values, self.cell, *rooms)
        count = self.row_count - missing if n_missing else self.row_count
        return HourlySums(total, squares if work is None else None, count)

    @cached_property
    def visit(self) -> Int64Array:
        """The GPUs by slice and serial, the order in which those of a group are added up."""
        return np.argsort(assign_slices(self.records.serials), kind="stable")

    def groups(self, name: str) -> PeerGroups:
        """Return the groups of GPUs with the same text, hour by hour."""
        if name not in self._groups:
            column = self.records.texts[name]
            cells = np.full(self.shape, -2, dtype=column.codes.dtype)
            _note_first(column.codes, self.cell, cells.reshape(-1))
            number = max(1, len(column.texts))
            self._groups[name] = PeerGroups.from_cells(number, cells, self.visit)
        return self._groups[name]

    def without_rows(self, texts: Iterable[str]) -> HourlyGrid:
        """Return the same hours without what each row takes; the groups of some columns stay."""
        for name in texts:
            self.groups(name)
        none = self.records.without_numbers().take(np.zeros(0, dtype=np.int64))
        return replace(self, records=none, cell=self.cell[:0].copy())

    def spans(
        self,
        gpu: Int32Array,
        end: Int64Array,
        life_start: Int64Array,
        lengths: Sequence[Nanoseconds],
    ) -> LookbackWindows:
        """Return the complete hours in some lengths of time before `end`."""
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
        if not begin <= time[row] < begin + bucket:  # a division takes longer than the rest
            hour = time[row] // bucket - first
            begin = (first + hour) * bucket
        cell[row] = gpu[row] * np.int64(row_count.shape[1]) + hour
        row_count[gpu[row], hour] += 1


@compiled
def _note_first(codes: SignedIntArray, cell: SignedIntArray, cells: SignedIntArray) -> None:
    """Put the code of the first row of each cell into `cells`; -2 stands for no row."""
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
    """Add values and squares up by cell; return how many are missing. Rows of a cell follow."""
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
    """Add up what is counted, nearly always 0; return how many values are missing."""
    n_missing = 0
    for row in range(len(values)):
        if values[row] != 0 and cell[row] >= 0:
            if np.isnan(values[row]):
                missing[cell[row]] += 1
                n_missing += 1
            else:
                total[cell[row]] += np.float64(values[row])
    return n_missing
