"""Texts and dates of all files, which hardly ever change: runs of equal ones for each GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from forewarn.features.records.column_files import KeysAsRead
from forewarn.features.records.file_check import Values, numbers_of
from forewarn.features.records.keys_builder import occurring_texts, renumber
from forewarn.features.records.runs import Runs, RunsBuilder
from forewarn.features.records.table import BoolArray, CodeArray, Column, FloatArray, TextColumn

__all__ = ["SeldomChanging"]


class SeldomChanging:
    """The text and date columns of records, put together file after file.

    Parameters
    ----------
    keys : KeysAsRead
    keep : ndarray of shape (n,), bool
        Rows whose texts exist.
    texts, dates : sequence of str
        Names of the columns; a file need not have those of texts.

    Attributes
    ----------
    nulls : dict of int
        How many dates of the records are null, by column.
    """

    def __init__(
        self, keys: KeysAsRead, keep: BoolArray, texts: Sequence[str], dates: Sequence[str]
    ) -> None:
        self._keys, self._keep = keys, keep
        self._texts: dict[str, dict[str, int]] = {name: {} for name in texts}
        self._number: dict[str, tuple[tuple[tuple[str, ...], int], CodeArray]] = {}
        self._columns = {name: _OrderedRuns(keys) for name in (*texts, *dates)}
        self._dates = tuple(dates)
        self.nulls = dict.fromkeys(dates, 0)

    def put(self, name: str, first_row: int, n_rows: int, values: Values) -> None:
        """Take over a column of one file, whose rows begin at `first_row`; file after file."""
        rows = slice(first_row, first_row + n_rows)
        if name in self.nulls:
            days = values.numbers[name]
            left_out = int(np.isnan(days[~self._keys.counted[rows]]).sum())
            self.nulls[name] += values.nulls[name] - left_out
            self._columns[name].add(_bits(days), first_row)
        elif name in values.texts:
            codes = self._numbered(name, values.texts[name], self._keep[rows])
            self._columns[name].add(codes, first_row)
        else:
            self._columns[name].add(np.full(n_rows, -1, dtype=np.int32), first_row)

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
        for text in occurring_texts(column, keep):
            numbers.setdefault(text, len(numbers))
        state = column.texts, len(numbers)  # most files have the same texts
        if name not in self._number or self._number[name][0] != state:
            self._number[name] = state, numbers_of(column.texts, numbers)
        number = self._number[name][1]
        if not (number[:-1] == np.arange(len(column.texts))).all():
            renumber(column.codes, number)
        return column.codes


class _OrderedRuns:
    """Runs of one column, of files that come by time or not."""

    def __init__(self, keys: KeysAsRead) -> None:
        self._keys, self._builder = keys, RunsBuilder(keys.n_gpus)
        self._unsorted: list[CodeArray] = []

    def add(self, values: CodeArray, first_row: int) -> None:
        """Take the values of one file."""
        if self._keys.order is None:
            gpu = self._keys.gpu[first_row : first_row + len(values)]
            self._builder.add(values, gpu, first_row)
        else:
            self._unsorted.append(values)

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
