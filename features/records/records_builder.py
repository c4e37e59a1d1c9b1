"""From checked files to records: order, doubles, gaps, lone missing records, counters.

The keys of all files come first: while they are brought into line, the values can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Keys, States, Values, numbers_of
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.row_cleaning import CleanRows, add_increases, goes_back
from forewarn.features.records.table import (
    SERIAL,
    BoolArray,
    CheckReport,
    CodeArray,
    Column,
    FeatureKinds,
    FloatArray,
    IntArray,
    Records,
    RecordsError,
)
from forewarn.features.threads import in_threads

__all__ = ["RecordsBuilder"]


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


@compiled
def _renumber(codes: CodeArray, number: CodeArray) -> None:
    """Put the new number in place of each code; the last one is that of null."""
    for row in range(len(codes)):
        codes[row] = number[codes[row]]


class _Aligned(NamedTuple):
    """The keys of all files in line.

    Attributes
    ----------
    serials : tuple of str
    gpu : ndarray, int32
        Position in the serials of each row as read, or as ordered; -1 for a row to leave out.
    order : ndarray of int64, or None
        Rows as read in the order that the columns must have; None if they lie well.
    line : CleanRows
    out : ndarray of bool
        Rows as read that are not in the line.
    interval : int
    """

    serials: tuple[str, ...]
    gpu: CodeArray
    order: IntArray | None
    line: CleanRows
    out: BoolArray
    interval: int


class RecordsBuilder:
    """Columns for the rows of all files: `put_keys` of all, `align`, `put` of all, `records`.

    Every column is allocated once: joining the files afterwards would touch twice the memory,
    and touching new memory costs as much as reading the files.

    Parameters
    ----------
    sizes : sequence of int
        Rows of each file, in the order of the file names; of two rows of one GPU and time the
        later one wins.
    kinds : FeatureKinds
    texts : sequence of str
        Text columns beside the serial that any file has.
    """

    def __init__(self, sizes: Sequence[int], kinds: FeatureKinds, texts: Sequence[str]) -> None:
        self._starts = np.cumsum([0, *sizes])
        self._kinds = kinds
        n = int(self._starts[-1])
        self._time, self._keep = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.bool_)
        self._failed = np.empty(n, dtype=np.bool_)
        numbers = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code, *kinds.date)
        self._numbers = {name: np.empty(n, dtype=np.float32) for name in numbers}
        self._codes = {name: np.empty(n, dtype=np.int32) for name in (SERIAL, *texts)}
        self._texts: dict[str, list[tuple[str, ...]]] = {
            name: [()] * len(sizes) for name in self._codes
        }
        self._occurring: dict[str, set[str]] = {name: set() for name in self._codes}
        self._nulls = dict.fromkeys(numbers, 0)
        self._n_rows, self._naive = 0, False
        self._counts: dict[str, list[npt.NDArray[np.float64]]] = {n: [] for n in kinds.counter}
        self._before: dict[str, npt.NDArray[np.float64]] = {}
        self._aligned: _Aligned | None = None

    def put_keys(self, number: int, keys: Keys) -> None:
        """Fill in the keys of one file; files may come in any order."""
        rows = self._rows_of(number)
        self._time[rows], self._keep[rows], self._failed[rows] = keys.time, keys.keep, keys.failed
        self._codes[SERIAL][rows] = keys.serial.codes
        self._note_texts(number, SERIAL, keys.serial.texts)
        self._n_rows += keys.n_rows
        self._naive |= keys.naive_time

    def align(self, interval: int) -> None:
        """Bring the keys of all files into line.

        Parameters
        ----------
        interval : int
            Nanoseconds between two records of a GPU.

        Raises
        ------
        RecordsError
            If there is no row, or the median spacing is off by more than half an interval.
        """
        if not self._keep.any():
            raise RecordsError("there is no row with a serial and a timestamp.")
        serial = self._column(SERIAL)
        gpu, time, failed, order = serial.codes, self._time, self._failed, None
        gpu[~self._keep] = -1
        if goes_back(gpu, time, len(serial.texts)):
            # Sums are added up in the order of the columns, and must not depend on how rows lie
            # in files.
            rows = np.flatnonzero(gpu >= 0)
            order = rows[stable_order(gpu[rows], time[rows])]
            gpu, time, failed = gpu[order], time[order], failed[order]
        line = CleanRows.of(gpu, time, failed, interval)
        out = np.full(len(self._keep), True)
        out[slice(None) if order is None else order] = ~line.counted
        self._before = {name: np.full(len(serial.texts), np.nan) for name in self._counts}
        self._aligned = _Aligned(serial.texts, gpu, order, line, out, interval)

    def failed_before(self, older: Sequence[Keys]) -> States | None:
        """Return the states, in older rows, of the GPUs that were failed in any of them."""
        ever: set[str] = set().union(*(keys.failed_serials() for keys in older))
        serials = enumerate(self._in_line().serials)
        position = {serial: gpu for gpu, serial in serials if serial in ever}
        number = cache(lambda texts: numbers_of(texts, position))  # most files have the same texts
        states = [keys.rows_of(number(keys.serial.texts)) for keys in older]
        return States.joined(states) if position else None

    def room(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Return where the values of one file are to lie, by name."""
        rows = self._rows_of(number)
        room = {name: values[rows] for name, values in (self._numbers | self._codes).items()}
        size = rows.stop - rows.start
        return room | {name: np.empty(size, dtype=np.float64) for name in self._counts}

    def put(self, number: int, values: Values) -> None:
        """Take over the values of one file, which lie in its `room`; file after file."""
        aligned, rows = self._in_line(), self._rows_of(number)
        out = np.flatnonzero(aligned.out[rows])
        for name, column in (values.numbers | values.counts).items():
            self._nulls[name] += values.nulls[name] - int(np.isnan(column[out]).sum())
        for name in self._kinds.code:
            values.numbers[name][np.isnan(values.numbers[name])] = 0
        for name in self._codes.keys() - {SERIAL}:
            if name in values.texts:
                self._note_texts(number, name, values.texts[name].texts)
            else:
                self._codes[name][rows] = -1
        for name, counts in values.counts.items():
            if aligned.order is None:
                before, gained = self._before[name], self._numbers[name][rows]
                add_increases(counts, aligned.gpu[rows], ~aligned.out[rows], before, gained)
            else:
                self._counts[name].append(counts)

    def records(self) -> Records:
        """Return the records, once the values of all files are there."""
        aligned, kinds = self._in_line(), self._kinds
        names = [name for name in self._codes if name != SERIAL]
        texts = dict(zip(names, in_threads(self._column, names), strict=True))
        columns = self._numbers
        if aligned.order is not None:
            columns = {n: self._sorted(n, aligned, aligned.order) for n in columns}
            texts = {
                n: Column(column.codes[aligned.order], column.texts) for n, column in texts.items()
            }
        line = aligned.line
        return Records(
            interval=aligned.interval,
            serials=aligned.serials,
            gpu=line.gpu,
            time=line.time,
            filled=line.filled,
            failed=line.failed,
            order=line.order,
            columns=columns,
            texts=texts,
            counters=kinds.counter,
            events=kinds.code,
            seen=self._seen(line),
        )

    def _rows_of(self, number: int) -> slice:
        return slice(int(self._starts[number]), int(self._starts[number + 1]))

    def _in_line(self) -> _Aligned:
        if self._aligned is None:
            raise RuntimeError("the keys are not in line yet")
        return self._aligned

    def _sorted(self, name: str, aligned: _Aligned, order: IntArray) -> FloatArray:
        """Return a column in order; of a counter, what it gained in that order."""
        if name not in self._counts:
            return self._numbers[name][order]
        values, counted = np.concatenate(self._counts[name])[order], aligned.line.counted
        gained = np.empty(len(values), dtype=np.float32)
        add_increases(values, aligned.gpu, counted, self._before[name], gained)
        return gained

    def _seen(self, line: CleanRows) -> CheckReport:
        return CheckReport(
            rows=self._n_rows,
            without_key=self._n_rows - int(np.count_nonzero(self._keep)),
            doubled=line.doubled,
            too_close=line.too_close,
            filled=int(np.count_nonzero(line.filled)),
            gaps=line.gaps,
            naive_time=self._naive,
            nulls=dict(self._nulls),
        )

    def _column(self, name: str) -> Column:
        """Return a text column with the texts that occur, sorted, whatever order files had."""
        codes, texts = self._codes[name], tuple(sorted(self._occurring[name]))
        position = {text: number for number, text in enumerate(texts)}
        for file, texts_of_file in enumerate(self._texts[name]):
            if texts_of_file != texts:
                _renumber(codes[self._rows_of(file)], numbers_of(texts_of_file, position))
        return Column(codes, texts)

    def _note_texts(self, number: int, name: str, texts: tuple[str, ...]) -> None:
        """Note what the codes of a file stand for, and which of it a row has that counts."""
        rows = self._rows_of(number)
        occurs = _occurring(self._codes[name][rows], self._keep[rows], len(texts))
        self._texts[name][number] = texts
        some = texts if occurs.all() else [texts[i] for i in np.flatnonzero(occurs)]
        self._occurring[name].update(some)
