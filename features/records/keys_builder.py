"""From checked files to records: order, doubles, gaps, lone missing records, texts.

The keys of all files come first; texts, which seldom change, become runs of equal ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import compress

import numpy as np

from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Keys
from forewarn.features.records.keys_as_read import KeysAsRead, RowKeys
from forewarn.features.records.line import Line
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.row_cleaning import CleanRows, Spacings, goes_back
from forewarn.features.records.table import (
    BoolArray,
    CheckReport,
    CodeArray,
    Column,
    NoRecordsError,
)
from forewarn.features.records.text_columns import numbers_of
from forewarn.features.records.times_as_read import TimesAsRead

__all__ = ["KeysBuilder", "occurring", "renumber"]


@compiled
def _occurring(codes: CodeArray, keep: BoolArray, n_texts: int) -> BoolArray:
    """Mark the texts that a kept row has; mostly a few rows have all of them."""
    occurs, left = np.zeros(n_texts, dtype=np.bool_), n_texts
    for row in range(len(codes)):
        if left == 0:
            break
        if keep[row] and codes[row] >= 0 and not occurs[codes[row]]:
            occurs[codes[row]] = True
            left -= 1
    return occurs


def occurring(column: Column, keep: BoolArray) -> BoolArray:
    """Mark the texts that a row to keep has."""
    return _occurring(column.codes, keep, len(column.texts))


@compiled
def renumber(codes: CodeArray, number: CodeArray) -> None:
    """Put the new number in place of each code; the last one is that of null."""
    for row in range(len(codes)):
        codes[row] = number[codes[row]]


class KeysBuilder:
    """Keys of all files: `put_keys` of all, then `number_gpus` and `align`.

    Every column is allocated once: joining the files afterwards would touch twice the memory,
    and touching new memory costs as much as reading the files.

    Parameters
    ----------
    sizes : sequence of int
        Rows of each file, in the order of the file names; of two rows of one GPU and time the
        later one wins.

    Attributes
    ----------
    serials : tuple of str
        Known once they are numbered; the rest once the keys are in line.
    keep : ndarray of shape (n,), bool
        Rows that have a serial and a timestamp, within the limits asked for.
    as_read : KeysAsRead
    line : Line
    seen : CheckReport
    """

    serials: tuple[str, ...]
    as_read: KeysAsRead
    line: Line
    seen: CheckReport

    def __init__(self, sizes: Sequence[int]) -> None:
        self._starts = np.cumsum([0, *sizes])
        n = int(self._starts[-1])
        self._time, self.keep = TimesAsRead(n), np.empty(n, dtype=np.bool_)
        self._gpu, self._failed = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.bool_)
        self._texts: list[tuple[str, ...]] = [()] * len(sizes)
        self._occurring: set[str] = set()
        self._n_rows, self._n_odd, self._naive = 0, 0, False

    def rows_of(self, number: int) -> slice:
        """Return which rows are those of a file."""
        return slice(int(self._starts[number]), int(self._starts[number + 1]))

    def put_keys(self, number: int, keys: Keys) -> None:
        """Fill in the keys of one file; files may come in any order."""
        rows = self.rows_of(number)
        self._time.put(rows, keys.time)
        self.keep[rows], self._failed[rows] = keys.keep, keys.failed
        self._gpu[rows] = keys.serial.codes
        self._texts[number] = keys.serial.texts
        self._occurring.update(compress(keys.serial.texts, occurring(keys.serial, keys.keep)))
        self._n_rows += keys.n_rows
        self._n_odd += keys.n_odd_states
        self._naive |= keys.naive_time

    def number_gpus(self) -> None:
        """Give each serial that occurs its place among all, whatever order files had.

        Raises
        ------
        NoRecordsError
            If there is no row.
        """
        if not self.keep.any():
            raise NoRecordsError("there is no row with a serial and a timestamp.")
        self.serials = tuple(sorted(self._occurring))
        position = {serial: number for number, serial in enumerate(self.serials)}
        number = cache(lambda texts: numbers_of(texts, position))  # most files have the same texts
        for file, texts in enumerate(self._texts):
            if texts != self.serials:
                renumber(self._gpu[self.rows_of(file)], number(texts))

    def align(self, interval: int, spacings: Spacings | None = None) -> None:
        """Bring the keys of all files into line.

        Parameters
        ----------
        interval : int
            Nanoseconds between two records of a GPU.
        spacings : Spacings, optional
            See `CleanRows.of`.

        Raises
        ------
        RecordsError
            If the median spacing is off by more than half an interval.
        """
        gpu, failed, order = self._gpu, self._failed, None
        time, unit = self._time.counted_for(interval)
        gpu[~self.keep] = -1
        if goes_back(gpu, time, len(self.serials)):
            # Sums are added up in the order of the columns, and must not depend on how rows lie
            # in files.
            rows = np.flatnonzero(gpu >= 0)
            order = rows[stable_order(gpu[rows], time[rows])]
            gpu, time, failed = gpu[order], time[order], failed[order]
        line = CleanRows.of(gpu, time, failed, interval, unit, spacings)
        counted = line.counted
        if order is not None:
            counted = np.full(len(self._gpu), False)
            counted[order], self._gpu[order] = line.counted, gpu
        self.as_read = RowKeys(self._gpu, counted, order, len(self.serials))
        self.line, self.seen = line.line(), self._seen(line)
        # Whoever reads the columns has no need of them.
        del self._time, self._failed, self._gpu

    def _seen(self, line: CleanRows) -> CheckReport:
        return CheckReport(
            rows=self._n_rows,
            without_key=self._n_rows - int(np.count_nonzero(self.keep)),
            doubled=line.doubled,
            too_close=line.too_close,
            filled=int(np.count_nonzero(line.filled)),
            gaps=line.gaps,
            odd_states=self._n_odd,
            naive_time=self._naive,
        )
