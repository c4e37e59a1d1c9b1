"""Texts and dates of all files, which hardly ever change: runs of equal ones for each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np

from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Values
from forewarn.features.records.keys_as_read import KeysAsRead, KeySegments, RunKeys
from forewarn.features.records.keys_builder import occurring, renumber
from forewarn.features.records.runs import Runs, RunsBuilder
from forewarn.features.records.table import (
    BoolArray,
    CodeArray,
    Column,
    FloatArray,
    IntArray,
    TextColumn,
)
from forewarn.features.records.text_columns import numbers_of

__all__ = ["RowsOfRuns", "SeldomChanging"]


class SeldomChanging:
    """The text and date columns of records, put together file after file.

    Parameters
    ----------
    keys : KeysAsRead
    keep : ndarray of shape (n,), bool, or None
        Rows whose texts exist; None stands for those that count.
    texts, dates : sequence of str
        Names of the columns; a file need not have those of texts.

    Attributes
    ----------
    nulls : dict of int
        How many dates of the records are null, by column.
    """

    def __init__(
        self, keys: KeysAsRead, keep: BoolArray | None, texts: Sequence[str], dates: Sequence[str]
    ) -> None:
        self._keys, self._keep = keys, keep
        self._texts: dict[str, dict[str, int]] = {name: {} for name in texts}
        self._number: dict[str, tuple[tuple[str, ...], CodeArray]] = {}
        self._columns = {name: _OrderedRuns(keys) for name in (*texts, *dates)}
        self._dates = tuple(dates)
        self._of_file: dict[int, RowsOfRuns] = {}
        self.nulls = dict.fromkeys(dates, 0)

    def put(
        self,
        name: str,
        rows: slice,
        values: Values,
        of_rows: IntArray | RowsOfRuns | None = None,
    ) -> None:
        """Take over a column of one file; file after file.

        Parameters
        ----------
        name : str
        rows : slice
            The rows of the file.
        values : Values
        of_rows : ndarray of shape (n_values,) or RowsOfRuns, optional
            How many rows each value is of, or which; without it, one.
        """
        runs = self._runs_of(rows, of_rows) if isinstance(of_rows, np.ndarray) else of_rows
        if name in self.nulls:
            days = values.numbers[name]
            counted = self._keys.counted_of(rows) if runs is None else runs.counted
            self.nulls[name] += int(counted[np.isnan(days)].sum())
            self._columns[name].add(_bits(days), rows, runs)
        elif name in values.texts:
            needed = self._needed(rows) if runs is None else runs.needed
            codes = self._numbered(name, values.texts[name], needed)
            self._columns[name].add(codes, rows, runs)
        else:
            unknown = np.full(rows.stop - rows.start, -1, dtype=np.int32)
            self._columns[name].add(unknown, rows)

    def _runs_of(self, rows: slice, n_rows: IntArray) -> RowsOfRuns:
        """Return what keys say of the runs of a file: the same for all of its columns."""
        if rows.start not in self._of_file:
            self._of_file[rows.start] = self._rows_of_runs(rows, n_rows)
        return self._of_file[rows.start]

    def _rows_of_runs(self, rows: slice, n_rows: IntArray) -> RowsOfRuns:
        if isinstance(self._keys, RunKeys):
            return RowsOfRuns.within(n_rows, self._keys.part(rows))
        gpu, counted = self._keys.gpu_of(rows), self._keys.counted_of(rows)
        return RowsOfRuns.of(n_rows, gpu, counted, self._needed(rows))

    def _needed(self, rows: slice) -> BoolArray:
        """Tell of which rows of a file the texts exist."""
        return self._keys.counted_of(rows) if self._keep is None else self._keep[rows]

    def texts(self) -> dict[str, TextColumn]:
        """Return the text columns with the texts that occur, sorted."""
        columns = {}
        for name, numbers in self._texts.items():
            texts = tuple(sorted(numbers))
            position = {text: number for number, text in enumerate(texts)}
            number = numbers_of(tuple(numbers), position)
            columns[name] = TextColumn(texts, self._columns[name].runs().renumbered(number))
        return columns

    def dates(self) -> dict[str, Runs]:
        """Return the date columns."""
        return {name: self._columns[name].runs() for name in self._dates}

    def _numbered(self, name: str, column: Column, keep: BoolArray) -> CodeArray:
        """Return the codes of a file as the numbers that the texts have got in all files."""
        numbers = self._texts[name]
        before = self._number.get(name, (None,))[0]
        if before is None or (before is not column.texts and before != column.texts):
            self._number[name] = column.texts, numbers_of(column.texts, numbers)
        number = self._number[name][1]  # most files have the same texts
        new = np.flatnonzero(occurring(column, keep) & (number[:-1] < 0))
        number[new] = len(numbers) + np.arange(len(new), dtype=np.int32)
        numbers.update(zip((column.texts[i] for i in new), number[new].tolist(), strict=True))
        if not (number[:-1] == np.arange(len(column.texts))).all():
            renumber(column.codes, number)
        return column.codes


class RowsOfRuns(NamedTuple):
    """What keys say of the n runs of a file.

    Attributes
    ----------
    n_rows : ndarray of shape (n,)
    needed : ndarray of shape (n,), bool
        A row of it is to be kept.
    counted : ndarray of shape (n,)
        How many of its rows are records.
    row, gpu : ndarray of shape (n,)
        The first of its rows, counted from the file's first one, that is a GPU's, and which; -1
        where there is none.
    """

    n_rows: IntArray
    needed: BoolArray
    counted: IntArray
    row: IntArray
    gpu: CodeArray

    @classmethod
    def of(cls, n_rows: IntArray, gpu: CodeArray, counted: BoolArray, keep: BoolArray) -> Self:
        """Look through the rows of all runs."""
        n = len(n_rows)
        needed, number = np.full(n, False), np.zeros(n, dtype=np.int64)
        row, owner = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int32)
        _look_through((gpu, counted, keep), n_rows, needed, number, row, owner)
        return cls(n_rows, needed, number, row, owner)

    @classmethod
    def in_order(
        cls, values: Values, name: str, order: IntArray, segments: KeySegments
    ) -> tuple[Values, Self]:
        """Find the runs of a column of texts or dates of a file.

        Parameters
        ----------
        values : Values
            Of all rows as they come.
        name : str
        order : ndarray of shape (n_rows,)
            In which they are taken.
        segments : KeySegments
            Of the rows in order.

        Returns
        -------
        Values
            Of each run.
        RowsOfRuns
        """
        is_date = name in values.numbers
        column = _bits(values.numbers[name]) if is_date else values.texts[name].codes
        row, n_rows, gpu, value = (np.empty(len(order), dtype=np.int32) for _ in range(4))
        n = _find_changes(column, order, segments, (row, n_rows, gpu, value))
        counted = n_rows[:n].astype(np.int64)
        runs = cls(counted, np.full(n, True), counted, row[:n].astype(np.int64), gpu[:n].copy())
        if is_date:
            return replace(values, numbers={name: value[:n].view(np.float32).copy()}), runs
        texts = Column(value[:n].copy(), values.texts[name].texts)
        return replace(values, texts={name: texts}), runs

    @classmethod
    def within(cls, n_rows: IntArray, segments: KeySegments) -> Self:
        """Find the runs in which segments lie that count.

        Parameters
        ----------
        n_rows : ndarray of shape (n,)
        segments : KeySegments
            Of the rows of the file.
        """
        end = np.cumsum(n_rows)
        segments = segments.cut(end - n_rows)
        counts = np.flatnonzero(segments.gpu >= 0)
        lengths = np.diff(np.append(segments.begin, end[-1] if len(end) else 0))[counts]
        begin, owner = segments.begin[counts], segments.gpu[counts]
        run = np.searchsorted(end, begin, side="right")
        number = np.bincount(run, lengths, minlength=len(n_rows)).astype(np.int64)
        row, gpu = np.full(len(n_rows), -1), np.full(len(n_rows), -1, dtype=np.int32)
        row[run[::-1]], gpu[run[::-1]] = begin[::-1], owner[::-1]  # the first one stays
        return cls(n_rows, number > 0, number, row, gpu)


@compiled
def _find_changes(
    values: CodeArray,
    order: IntArray,
    segments: KeySegments,
    room: tuple[CodeArray, CodeArray, CodeArray, CodeArray],
) -> int:
    """Put first row, number of rows, GPU and value of each run into four arrays; count them.

    A segment begins another run, and where rows do not count there is none.
    """
    first, n_rows, owner, value = room
    n = 0
    for number in range(len(segments.begin)):
        if segments.gpu[number] < 0:
            continue
        begin = segments.begin[number]
        end = segments.begin[number + 1] if number + 1 < len(segments.begin) else len(order)
        since, current = begin, values[order[begin]]
        for row in range(begin + 1, end + 1):
            if row < end and values[order[row]] == current:
                continue
            first[n], n_rows[n] = since, row - since
            owner[n], value[n] = segments.gpu[number], current
            n += 1
            if row < end:
                since, current = row, values[order[row]]
    return n


@compiled
def _look_through(
    rows: tuple[CodeArray, BoolArray, BoolArray],
    n_rows: IntArray,
    needed: BoolArray,
    counted: IntArray,
    first: IntArray,
    gpu: CodeArray,
) -> None:
    owner, counts, keep = rows
    row = 0
    for run in range(len(n_rows)):
        for _ in range(n_rows[run]):
            needed[run] |= keep[row]
            counted[run] += counts[row]
            if first[run] < 0 and owner[row] >= 0:
                first[run], gpu[run] = row, owner[row]
            row += 1


class _OrderedRuns:
    """Runs of one column, of files that come by time or not."""

    def __init__(self, keys: KeysAsRead) -> None:
        self._keys, self._builder = keys, RunsBuilder(keys.n_gpus)
        self._unsorted: list[CodeArray] = []

    def add(self, values: CodeArray, rows: slice, runs: RowsOfRuns | None = None) -> None:
        """Take the values of one file, of each row or of runs of rows."""
        if self._keys.order is not None:
            self._unsorted.append(values if runs is None else np.repeat(values, runs.n_rows))
        elif runs is None:
            self._builder.add(values, self._keys.gpu_of(rows), rows.start)
        else:
            self._builder.add_at(values, runs.gpu, runs.row + rows.start)

    def runs(self) -> Runs:
        """Return the runs of all files."""
        if self._keys.order is not None:
            values = np.concatenate([np.zeros(0, np.int32), *self._unsorted])[self._keys.order]
            self._builder.add(values, self._keys.gpu_in_order, 0)
            self._unsorted = []
        return self._builder.runs()


def _bits(values: FloatArray) -> CodeArray:
    """Return the bits of floats: NaN equals itself then."""
    return values.view(np.int32)
