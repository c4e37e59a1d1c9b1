"""Keys of a file as runs: rows of one GPU, one after another, that have state and texts in common.

A GPU that reports at a fixed interval, and whose texts stay, has one run a date: what takes 144
rows to read takes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Keys
from forewarn.features.records.table import BoolArray, CodeArray, Column, IntArray
from forewarn.features.records.text_columns import array_of

__all__ = ["FEWEST_PER_RUN", "KeyRuns", "changes_of", "find_runs", "times_of_runs"]

FEWEST_PER_RUN = 8
"""Rows that a run has at least, on average, where runs are worth it."""

_WHOLE = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class KeyRuns:
    """Keys and texts of the rows of a file, run after run.

    Attributes
    ----------
    first : Keys
        Of the first row of each; all of them are kept, no state is odd.
    n_rows : ndarray of shape (n_runs,)
    step : ndarray of shape (n_runs,) or None
        Nanoseconds between two rows of each; None where some are uneven.
    texts : mapping of Column
        Columns that are texts in the file, dates among them.
    """

    first: Keys
    n_rows: IntArray
    step: IntArray | None
    texts: Mapping[str, Column]

    def part(self, begin: int, end: int) -> KeyRuns:
        """Return the runs [begin, end)."""
        some = slice(begin, end)
        step = None if self.step is None else self.step[some]
        texts = {name: column.at(some) for name, column in self.texts.items()}
        return KeyRuns(self.first.at(some), self.n_rows[some], step, texts)

    def text(self, name: str) -> Column:
        """Return a column of texts; the codes are a copy, which may be renumbered."""
        column = self.texts[name]
        return Column(column.codes.copy(), column.texts)

    def table(self, name: str) -> pa.Table:
        """Return a column of texts as it is read from a file, a row for each run."""
        return pa.table({name: array_of(_narrow(self.texts[name]))})

    def keys(self, start: int | None = None, end: int | None = None) -> Keys | None:
        """Return the keys of all rows, as `check_keys` does; None where times are uneven.

        Parameters
        ----------
        start, end : int, optional
            Only rows of [start, end) are kept, nanoseconds since 1970 UTC.
        """
        if self.step is None:
            return None
        first, n = self.first, int(self.n_rows.sum())
        serial = _narrow(first.serial)
        codes, time = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int64)
        failed, keep = np.empty(n, dtype=np.bool_), np.empty(n, dtype=np.bool_)
        runs = self.n_rows, first.time, self.step, serial.codes, first.failed
        limits = _WHOLE[0] if start is None else start, _WHOLE[1] if end is None else end
        n_kept = _lay_keys(runs, limits, (codes, time, failed, keep))
        serial = Column(codes, serial.texts)
        return Keys(serial, time, keep, failed, n_kept, first.naive_time, first.odd)

    def ends(self, end: int | None = None) -> Keys | None:
        """Return the keys of the first and the last row of each run before `end`.

        No GPU changes its state in between. None where times are uneven.
        """
        if self.step is None:
            return None
        runs = np.flatnonzero(self.first.time < (_WHOLE[1] if end is None else end))
        first, step, steps = self.first.time[runs], self.step[runs], self.n_rows[runs] - 1
        if end is not None:
            steps = np.minimum(steps, (end - 1 - first) // np.maximum(step, 1))
        two = np.stack([np.full(len(runs), True), steps > 0], axis=1).reshape(-1)
        times = np.stack([first, first + steps * step], axis=1).reshape(-1)[two]
        keys = self.first.at(np.repeat(runs, 2)[two])
        return replace(keys, time=times, n_rows=int((steps + 1).sum()))


def _narrow(column: Column) -> Column:
    """Leave out the texts that do not occur.

    The codes are new ones: whoever reads a file may renumber what was read.
    """
    occurs = np.full(len(column.texts) + 1, False)
    occurs[column.codes] = True  # the -1 of null is the last
    occurs[-1] = False
    number = np.cumsum(occurs, dtype=np.int32) - 1
    number[-1] = -1
    texts = map(column.texts.__getitem__, np.flatnonzero(occurs).tolist())
    return Column(number[column.codes], tuple(texts))


def changes_of(columns: Sequence[npt.NDArray[np.generic]]) -> BoolArray:
    """Tell which rows differ in any column from the one before; the first does.

    Examples
    --------
    >>> changes_of([np.array([1, 1, 2, 2]), np.array([5, 5, 5, 6])]).tolist()
    [True, False, True, True]
    """
    changes = np.full(len(columns[0]), False)
    changes[:1] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return changes


def find_runs(changes: BoolArray, time: IntArray, most: int) -> tuple[IntArray, IntArray | None]:
    """Find runs of rows: a new one begins with each change, and where the spacing does.

    Parameters
    ----------
    changes : ndarray of shape (n,), bool
        Whether a row differs from the one before in anything but its time; the first does.
    time : ndarray of shape (n,)
    most : int
        If more runs were needed for even spacing, times are left out of account.

    Returns
    -------
    ndarray of shape (n_runs,)
        The first row of each.
    ndarray of shape (n_runs,), or None
        The spacing of each; None where it is uneven.

    Examples
    --------
    >>> changes = np.array([True, False, False, True, False])
    >>> find_runs(changes, np.array([0, 10, 20, 0, 10]), most=2)
    (array([0, 3]), array([10, 10]))
    >>> find_runs(changes, np.array([0, 10, 21, 0, 10]), most=2)
    (array([0, 3]), None)
    """
    begin, step = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    n_runs = _even_runs(changes, time, begin, step)
    if n_runs < 0:
        return np.flatnonzero(changes), None
    return begin[:n_runs].copy(), step[:n_runs].copy()


def times_of_runs(first: IntArray, n_rows: IntArray, step: IntArray) -> IntArray:
    """Return the time of each row of runs.

    Examples
    --------
    >>> times_of_runs(np.array([0, 5]), np.array([3, 1]), np.array([10, 0])).tolist()
    [0, 10, 20, 5]
    """
    time = np.empty(int(n_rows.sum()), dtype=np.int64)
    _lay_times(first, n_rows, step, time)
    return time


@compiled
def _lay_times(first: IntArray, n_rows: IntArray, step: IntArray, time: IntArray) -> None:
    row = 0
    for run in range(len(n_rows)):
        for number in range(n_rows[run]):
            time[row] = first[run] + step[run] * number
            row += 1


@compiled
def _even_runs(changes: BoolArray, time: IntArray, begin: IntArray, step: IntArray) -> int:
    """Put first row and step of each run into two arrays and return how many; -1 if too many."""
    n_runs, length = 0, 0
    for row in range(len(time)):
        spacing = time[row] - time[row - 1] if row else 0
        if not changes[row] and length == 1:
            step[n_runs - 1] = spacing
        if changes[row] or (length > 1 and spacing != step[n_runs - 1]):
            if n_runs == len(begin):
                return -1
            begin[n_runs], step[n_runs] = row, 0
            n_runs, length = n_runs + 1, 0
        length += 1
    return n_runs


@compiled
def _lay_keys(
    runs: tuple[IntArray, IntArray, IntArray, CodeArray, BoolArray],
    limits: tuple[int, int],
    rows: tuple[CodeArray, IntArray, BoolArray, BoolArray],
) -> int:
    """Lay out the rows of all runs; return how many lie within the limits."""
    n_rows, first, step, serial, state = runs
    codes, time, failed, keep = rows
    row = n_kept = 0
    for run in range(len(n_rows)):
        for number in range(n_rows[run]):
            codes[row], failed[row] = serial[run], state[run]
            time[row] = first[run] + step[run] * number
            keep[row] = limits[0] <= time[row] < limits[1]
            n_kept += keep[row]
            row += 1
    return n_kept
