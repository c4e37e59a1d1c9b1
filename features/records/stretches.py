"""The values of a column of numbers in a stretch of rows as read: row by row, or run by run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.ordering import first_from

__all__ = ["RowStretch", "RunStretch", "Stretch", "run_begins"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]
_Kind = TypeVar("_Kind", bound=np.generic)


def run_begins(values: npt.NDArray[_Kind]) -> IntArray:
    """Return the first row of each run of equal integers, bools or texts of bits.

    Examples
    --------
    >>> run_begins(np.array([5, 5, 7, 5])).tolist()
    [0, 2, 3]
    """
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    return np.concatenate([np.zeros(min(1, len(values)), dtype=np.int64), changes])


@dataclass(frozen=True, slots=True)
class RowStretch:
    """The values of rows as read from `low` on, shape (n,), float32."""

    low: int
    values: FloatArray

    @property
    def high(self) -> int:
        """One more than the last row."""
        return self.low + len(self.values)

    def between(self, low: int, high: int) -> RowStretch:
        """Return the rows [low, high)."""
        return RowStretch(low, self.values[low - self.low : high - self.low])

    def mapped(self, work: Callable[[FloatArray], FloatArray]) -> RowStretch:
        """Return what `work` makes of each value by itself."""
        return replace(self, values=work(self.values))

    def at(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return the values of rows as read, of any shape."""
        values: FloatArray = self.values[rows - self.low if self.low else rows]
        return values

    def rows_not_zero(self) -> IntArray:
        """Return the rows as read whose value is not 0."""
        return np.flatnonzero(self.values != 0) + self.low

    def in_runs(self) -> RunStretch:
        """Return the same as runs of values that are the same to the last bit."""
        begin = run_begins(self.values.view(np.int32))
        return RunStretch(begin + self.low, self.values[begin], self.high)

    def without(self, rows: IntArray) -> RowStretch:
        """Return the same with NaN at some rows as read; a copy if it may not be written to."""
        values = self.values if self.values.flags.writeable else self.values.copy()
        values[rows - self.low] = np.nan
        return replace(self, values=values)


@dataclass(frozen=True, slots=True)
class RunStretch:
    """The values of a column in rows as read, run after run.

    Attributes
    ----------
    begin : ndarray of shape (n_runs,), int64
        First row of each.
    value : ndarray of shape (n_runs,), float32
    end : int
        One more than the last row.
    """

    begin: IntArray
    value: FloatArray
    end: int

    @classmethod
    def joined(cls, parts: Iterable[Stretch]) -> RunStretch:
        """Return parts that follow one another as one, which is small if values hardly change.

        Examples
        --------
        >>> zeros = RowStretch(5, np.zeros(3, dtype=np.float32))
        >>> whole = RunStretch.joined([zeros, RowStretch(8, np.array([0, 7, 0], np.float32))])
        >>> whole.begin.tolist(), whole.value.tolist(), whole.end
        ([5, 8, 9, 10], [0.0, 0.0, 7.0, 0.0], 11)
        """
        runs = [part.in_runs() if isinstance(part, RowStretch) else part for part in parts]
        if len(runs) == 1:
            return runs[0]
        begin = np.concatenate([np.zeros(0, dtype=np.int64), *(part.begin for part in runs)])
        value = np.concatenate([np.zeros(0, dtype=np.float32), *(part.value for part in runs)])
        return cls(begin, value, runs[-1].end if runs else 0)

    @property
    def low(self) -> int:
        """The first row."""
        return int(self.begin[0]) if len(self.begin) else self.end

    @property
    def high(self) -> int:
        """One more than the last row."""
        return self.end

    def between(self, low: int, high: int) -> RunStretch:
        """Return the rows [low, high)."""
        if low >= high:
            return RunStretch(self.begin[:0], self.value[:0], low)
        first = int(np.searchsorted(self.begin, low, side="right")) - 1
        last = int(np.searchsorted(self.begin, high))
        return RunStretch(np.maximum(self.begin[first:last], low), self.value[first:last], high)

    def mapped(self, work: Callable[[FloatArray], FloatArray]) -> RunStretch:
        """Return what `work` makes of each value by itself."""
        return replace(self, value=work(self.value))

    def at(self, rows: npt.NDArray[np.integer]) -> FloatArray:
        """Return the values of rows as read, of any shape; it is quick where they rise."""
        values = np.empty(rows.shape, dtype=np.float32)
        _look_up(self.begin, self.value, self.end, rows.reshape(-1), values.reshape(-1))
        return values

    def rows_not_zero(self) -> IntArray:
        """Return the rows as read whose value is not 0."""
        runs = np.flatnonzero(self.value != 0)
        begin, n_rows = self.begin[runs], np.diff(np.append(self.begin, self.end))[runs]
        before = np.cumsum(n_rows) - n_rows
        return np.repeat(begin - before, n_rows) + np.arange(n_rows.sum())

    def without(self, rows: IntArray) -> RunStretch:
        """Return the same with NaN at some rows as read, which rise."""
        row = np.unique(np.concatenate([rows, (rows + 1)[rows + 1 < self.end]]))
        new = np.where(np.isin(row, rows), np.float32(np.nan), self.at(row))
        run = np.searchsorted(self.begin, row)
        begins = np.append(self.begin, self.end)[run] == row
        value = self.value.copy()
        value[run[begins]] = new[begins]
        more = run[~begins], row[~begins], new[~begins]
        begin, value = np.insert(self.begin, *more[:2]), np.insert(value, more[0], more[2])
        return RunStretch(begin, value, self.end)


Stretch = RowStretch | RunStretch


@compiled
def _look_up(
    begin: IntArray,
    value: FloatArray,
    end: int,
    rows: npt.NDArray[np.integer],
    values: FloatArray,
) -> None:
    low, high, run = 0, -1, 0  # no row lies in there
    for i in range(len(rows)):
        row = rows[i]
        if not low <= row < high:
            if row == high and run + 1 < len(begin):
                run += 1
            else:
                run = first_from(begin, 0, len(begin), row + 1) - 1
            low = begin[run]
            high = begin[run + 1] if run + 1 < len(begin) else end
        values[i] = value[run]
