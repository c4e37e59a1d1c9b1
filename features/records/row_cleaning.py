"""Row cleaning: sorting by GPU and time, removal of duplicates, filling of single gaps."""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import (
    BoolArray,
    Int32Array,
    Int64Array,
    SignedIntArray,
    UInt8Array,
)
from forewarn.features.compiled import compiled
from forewarn.features.duration import format_duration
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.record_table import RecordsError
from forewarn.features.time_units import SECOND

__all__ = ["CleanRows", "SpacingCheck", "SpacingCounts"]


class SpacingCounts(NamedTuple):
    """Number of spacings, of too short and too long ones, and of duplicate rows."""

    number: int
    short: int
    long: int
    doubled: int

    @property
    def is_odd(self) -> bool:
        """Whether most spacings are too short, or most are too long."""
        return 2 * max(self.short, self.long) > self.number


class SpacingCheck:
    """A check that the spacing of all parts of a fleet together fits the interval.

    A part is a slice of GPUs or a span of time.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(3, dtype=np.int64)
        self._odd: RecordsError | None = None
        self._lock = Lock()

    def add(self, spacing: SpacingCounts, odd: RecordsError | None) -> None:
        """Count the spacings of a part; `odd` is its error if most spacings do not fit."""
        with self._lock:
            self._counts += spacing[:3]
            # If most spacings do not fit overall, this holds for at least one part.
            self._odd = self._odd or odd

    def check(self, name: str) -> None:
        """Reject the records of all added parts if their spacing does not fit.

        Parameters
        ----------
        name : str
            Source of the records, for the message.

        Raises
        ------
        RecordsError
            If the median spacing deviates from the interval by more than half.
        """
        if self._odd is not None and SpacingCounts._make([*self._counts.tolist(), 0]).is_odd:
            raise RecordsError(f"{name}: {self._odd}")


class CleanRows(NamedTuple):
    """n records sorted by GPU and time, with counts of dropped rows and gaps.

    Attributes
    ----------
    gpu : ndarray of shape (n,), int32
    time : ndarray of shape (n,), int64
    failed, filled : ndarray of shape (n,), bool
    row : ndarray of shape (n,), int32, or int64 where that is too small
        Row as read; for a filled record, the row of the previous record.
    doubled, too_close, gaps : int
        Dropped rows, and gaps of more than one record.
    """

    gpu: Int32Array
    time: Int64Array
    failed: BoolArray
    filled: BoolArray
    row: SignedIntArray
    doubled: int
    too_close: int
    gaps: int

    @classmethod
    def from_rows(
        cls,
        gpu: Int32Array,
        time: Int64Array,
        failed: BoolArray,
        interval: int,
        spacings: SpacingCheck | None = None,
    ) -> CleanRows:
        """Sort and clean rows.

        Parameters
        ----------
        gpu, time, failed : ndarray of shape (n_read,)
            As read. Of two rows of one GPU and time the later one wins.
        interval : int
            Nanoseconds between two records of a GPU.
        spacings : SpacingCheck, optional
            Shared by all parts of a fleet; without it the spacing is checked at once.

        Raises
        ------
        RecordsError
            If the median spacing deviates from the interval by more than half.
        """
        order = stable_order(gpu, time)
        rows = gpu, time, failed, order
        n_out = np.empty(len(gpu), dtype=np.uint8)
        spacing, n, gaps, too_close = _count_output_rows(*rows, interval, n_out)
        odd = _spacing_error(gpu[order], time[order], interval) if spacing.is_odd else None
        if spacings is not None:
            spacings.add(spacing, odd)
        elif odd is not None:
            raise odd
        clean = cls(
            gpu=np.empty(n, dtype=np.int32),
            time=np.empty(n, dtype=np.int64),
            failed=np.empty(n, dtype=np.bool_),
            filled=np.empty(n, dtype=np.bool_),
            row=np.empty(n, dtype=order.dtype),
            doubled=spacing.doubled,
            too_close=too_close,
            gaps=gaps,
        )
        _write_records(*rows, interval, n_out, clean)
        return clean

    def without_rows(self) -> CleanRows:
        """Return the counts without the rows."""
        return self._replace(
            gpu=self.gpu[:0].copy(),
            time=self.time[:0].copy(),
            failed=self.failed[:0].copy(),
            filled=self.filled[:0].copy(),
            row=self.row[:0].copy(),
        )


def _spacing_error(gpu: Int32Array, time: Int64Array, interval: int) -> RecordsError:
    apart = np.diff(time)[np.diff(gpu) == 0]
    median = format_duration(np.median(apart[apart > 0]) / SECOND)
    return RecordsError(
        f"records are {median} apart (median), expected "
        f"`records.interval` = {format_duration(interval / SECOND)} within one half."
    )


@compiled
def _count_output_rows(
    gpu: Int32Array,
    time: Int64Array,
    failed: BoolArray,
    order: SignedIntArray,
    interval: int,
    n_out: UInt8Array,
) -> tuple[SpacingCounts, int, int, int]:
    """Write the number of output records of each sorted row into `n_out`; count spacings.

    A duplicate row and a row that is too close yield no record; a row after a single missing record
    yields two. Also returns the number of records, of gaps and of rows that are too close.
    """
    number = short = long = doubled = n = gaps = too_close = 0
    before = -1  # GPU of the last record
    seen = last = np.int64(0)  # times of the previous row and of the last record
    for i in range(len(order)):
        row = order[i]
        moment, n_out[i] = time[row], 1
        if i + 1 < len(order):
            after = order[i + 1]
            if gpu[after] == gpu[row] and time[after] == moment:
                n_out[i] = 0
                doubled += 1
                continue
        if gpu[row] == before:
            step, apart = moment - seen, moment - last
            number += 1
            short += step * 2 < interval
            long += step * 2 > 3 * interval
            # A failed record is always kept: it may be the only evidence of a failure.
            if apart * 2 < interval and not failed[row]:
                n_out[i] = 0
                too_close += 1
                seen = moment
                continue
            if apart * 2 >= 5 * interval:
                gaps += 1
            elif apart * 2 >= 3 * interval:
                n_out[i] = 2
        before, seen, last = gpu[row], moment, moment
        n += n_out[i]
    return SpacingCounts(number, short, long, doubled), n, gaps, too_close


@compiled
def _write_records(
    gpu: Int32Array,
    time: Int64Array,
    failed: BoolArray,
    order: SignedIntArray,
    interval: int,
    n_out: UInt8Array,
    clean: CleanRows,
) -> None:
    n = 0
    for i in range(len(order)):
        row = order[i]
        if n_out[i] == 2:
            clean.gpu[n], clean.time[n] = gpu[row], clean.time[n - 1] + interval
            clean.failed[n], clean.filled[n] = clean.failed[n - 1], True
            clean.row[n] = clean.row[n - 1]
            n += 1
        if n_out[i]:
            clean.gpu[n], clean.time[n], clean.row[n] = gpu[row], time[row], row
            clean.failed[n], clean.filled[n] = failed[row], False
            n += 1
