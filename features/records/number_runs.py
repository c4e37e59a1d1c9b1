"""Columns of numbers that hardly change, as runs: rows one after another that hold one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.number_columns import as_single
from forewarn.features.records.stretches import RunStretch, run_begins

__all__ = ["FEWEST_PER_RUN", "KeySegments", "NumberRuns"]

FEWEST_PER_RUN = 8
"""Rows that a run has at least, on average, where runs are worth it."""

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]


class NumberRuns(NamedTuple):
    """A column of some rows that follow one another; NaN is null.

    Attributes
    ----------
    value : ndarray of shape (n_runs,), float64
    n_rows : ndarray of shape (n_runs,), int32
        At least 1.
    """

    value: DoubleArray
    n_rows: CodeArray

    @classmethod
    def of(
        cls, values: DoubleArray, order: npt.NDArray[np.signedinteger] | None = None
    ) -> NumberRuns:
        """Find the runs of values that are the same to the last bit.

        Parameters
        ----------
        values : ndarray of shape (n,)
        order : ndarray of shape (n,), optional
            In which the values are taken.

        Examples
        --------
        >>> runs = NumberRuns.of(np.array([1.0, 1.0, 0.0, -0.0]))
        >>> runs.value.tolist(), runs.n_rows.tolist()
        ([1.0, 0.0, -0.0], [2, 1, 1])
        """
        if order is not None:
            value, n_rows = np.empty(len(order)), np.empty(len(order), dtype=np.int32)
            n = _find_runs(values.view(np.int64), order, value.view(np.int64), n_rows)
            return cls(value[:n].copy(), n_rows[:n].copy())
        begin = run_begins(values.view(np.int64))
        return cls(values[begin], np.diff(np.append(begin, len(values))).astype(np.int32))

    @classmethod
    def joined(cls, parts: Sequence[NumberRuns]) -> NumberRuns:
        """Return the runs of all parts, one part after another."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def single(self) -> NumberRuns:
        """Return the values as if they had been read as float32."""
        return self._replace(value=as_single(self.value).astype(np.float64))

    def missing(self, segments: KeySegments) -> int:
        """Count the values that are missing in rows that count; segments begin with the first."""
        lost = np.flatnonzero(np.isnan(self.value))
        begin, end = self._begin(0)
        return _count_within(begin[lost], self.n_rows[lost], segments.begin, segments.gpu, end)

    def stretch(self, low: int) -> RunStretch:
        """Return them as those of rows as read from `low` on."""
        begin, end = self._begin(low)
        return RunStretch(begin, self.value.astype(np.float32), end)

    def gains(self, low: int, segments: KeySegments, before: DoubleArray) -> RunStretch:
        """Return what a counter gained since the record before (`add_increases`).

        Parameters
        ----------
        low : int
            The first row, as read.
        segments : KeySegments
            Of these rows, counted from the first.
        before : ndarray of shape (n_gpus,)
            What each GPU's record before them holds, NaN if it has none; it is made to hold the
            last of them.
        """
        begin, end = self._begin(0)
        most = 2 * (len(begin) + len(segments.begin))
        gained_at, gained = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.float32)
        runs = begin, self.value, end
        n = _find_gains(runs, segments.begin, segments.gpu, before, gained_at, gained)
        return RunStretch(gained_at[:n] + low, gained[:n].copy(), end + low)

    def _begin(self, low: int) -> tuple[IntArray, int]:
        """Return the first row of each run, and one more than the last row."""
        ends = low + np.cumsum(self.n_rows, dtype=np.int64)
        return ends - self.n_rows, int(ends[-1]) if len(ends) else low


class KeySegments(NamedTuple):
    """Rows one after another that are of one GPU and all count, or do not.

    Attributes
    ----------
    begin : ndarray of shape (n,), int64
        First row of each.
    gpu : ndarray of shape (n,), int32
        -1 where the rows do not count.
    n_gpus : int
    """

    begin: IntArray
    gpu: CodeArray
    n_gpus: int

    @classmethod
    def of(cls, gpu: CodeArray, counted: BoolArray, n_gpus: int) -> KeySegments:
        """Find them among rows as read, shape (n,)."""
        owner = np.where(counted, gpu, np.int32(-1))
        begin = run_begins(owner)
        return cls(begin, owner[begin], n_gpus)

    def between(self, low: int, high: int) -> KeySegments:
        """Return the segments of the rows [low, high), which are counted from the first of them.

        Examples
        --------
        >>> KeySegments(np.array([0, 4, 9]), np.array([7, 8, 7]), 9).between(5, 9).begin
        array([0])
        """
        first = max(0, int(np.searchsorted(self.begin, low, side="right")) - 1)
        last = max(first, int(np.searchsorted(self.begin, high)))
        begin = np.maximum(self.begin[first:last] - low, 0)
        return self._replace(begin=begin, gpu=self.gpu[first:last])

    def cut(self, rows: IntArray) -> KeySegments:
        """Return the same rows with a segment beginning at each of some rows, too.

        Examples
        --------
        >>> KeySegments(np.array([0, 4]), np.array([7, 8]), 9).cut(np.array([0, 2, 4])).gpu
        array([7, 7, 8])
        """
        begin = np.union1d(self.begin, rows)
        gpu = self.gpu[np.searchsorted(self.begin, begin, side="right") - 1]
        return self._replace(begin=begin, gpu=gpu)


@compiled
def _find_runs(
    bits: IntArray, order: npt.NDArray[np.signedinteger], value: IntArray, n_rows: CodeArray
) -> int:
    """Put value and number of rows of each run into two arrays; count them."""
    n = since = 0
    for row in range(1, len(order)):
        current = bits[order[row]]
        if current != bits[order[since]]:
            value[n], n_rows[n] = bits[order[since]], row - since
            n, since = n + 1, row
    if len(order):
        value[n], n_rows[n] = bits[order[since]], len(order) - since
        n += 1
    return n


@compiled
def _count_within(
    begin: IntArray, n_rows: CodeArray, segment: IntArray, gpu: CodeArray, end: int
) -> int:
    """Count the rows of some runs, which rise, that lie in segments that count."""
    n = number = 0
    for run in range(len(begin)):
        row, last = begin[run], begin[run] + n_rows[run]
        while row < last:
            while number + 1 < len(segment) and segment[number + 1] <= row:
                number += 1
            stop = min(last, segment[number + 1] if number + 1 < len(segment) else end)
            n += (stop - row) * (gpu[number] >= 0)
            row = stop
    return n


@compiled
def _find_gains(
    runs: tuple[IntArray, DoubleArray, int],
    segment: IntArray,
    gpu: CodeArray,
    before: DoubleArray,
    begin: IntArray,
    gained: FloatArray,
) -> int:
    """Go along runs and segments together; put what begins where into two arrays, count it.

    Within a run a counter gains nothing: only its first row of each segment can have.
    """
    first, value, end = runs
    n = run = number = 0
    row = 0
    while row < end:
        run_end = first[run + 1] if run + 1 < len(first) else end
        segment_end = segment[number + 1] if number + 1 < len(segment) else end
        owner = gpu[number]
        more, rest = np.nan, np.nan
        if owner >= 0:
            more, rest = value[run] - before[owner], value[run] - value[run]
            more = value[run] if more < 0 else more
            before[owner] = value[run]
        begin[n], gained[n] = row, more
        n += 1
        stop = min(run_end, segment_end)
        if row + 1 < stop:
            begin[n], gained[n] = row + 1, rest
            n += 1
        run += stop == run_end
        number += stop == segment_end
        row = stop
    return n
