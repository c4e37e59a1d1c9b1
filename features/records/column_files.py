"""Columns of numbers in many files, each read when it is asked for, and let go of again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forewarn.features.records.file_check import Columns, put_numbers
from forewarn.features.records.key_runs import KeyRuns
from forewarn.features.records.keys_as_read import KeysAsRead
from forewarn.features.records.number_columns import leave_out_no_codes
from forewarn.features.records.row_cleaning import add_increases
from forewarn.features.records.stretches import Stretch
from forewarn.features.records.table import FeatureKinds, FloatArray, IntArray
from forewarn.features.threads import in_threads, in_turn, n_threads

__all__ = ["COLUMNS_AT_ONCE", "ColumnFiles", "NullCounts", "RecordSource"]

COLUMNS_AT_ONCE = 2
"""Columns of numbers that may be in memory at a time, where not all of them are kept."""

_KEPT_BYTES = 256 * 2**20  # columns that take no more in all are read once and kept
_PART_ROWS = 2**20  # a part of a column: 4 MiB, which a cache holds


class RecordSource(Protocol):
    """A file of records that can be opened more than once, and stays the same."""

    @property
    def name(self) -> str:
        """The name of the file, for messages."""
        ...

    @property
    def n_rows(self) -> int:
        """The number of its rows."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The names and the types of its columns."""
        ...

    def columns(self) -> AbstractContextManager[Columns]:
        """Open its columns."""
        ...

    def runs(self, *, with_texts: bool = True) -> KeyRuns | None:
        """Return the runs of its rows, if they are known; without texts they are not kept."""
        ...


class NullCounts(Mapping[str, int]):
    """How many values of each column are null; one that was not read yet is read for it."""

    def __init__(self, columns: ColumnFiles, names: Sequence[str], known: dict[str, int]) -> None:
        self._columns, self._names, self._known = columns, names, known

    def __getitem__(self, name: str) -> int:
        if name not in self._known and name in self._names:
            self._columns.read(name, 0, self._columns.n_rows)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class ColumnFiles:
    """The columns of numbers of all files (`NumberColumns`).

    Parameters
    ----------
    sources : sequence of RecordSource
    kinds : FeatureKinds
    keys : KeysAsRead
    nulls : dict of int
        Filled in: how many values of a column are null, once all of it was read.
    once : bool
        Each column is asked for once, so that not even few are kept.
    """

    def __init__(
        self,
        sources: Sequence[RecordSource],
        kinds: FeatureKinds,
        keys: KeysAsRead,
        nulls: dict[str, int],
        *,
        once: bool = False,
    ) -> None:
        self.names = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code)
        self._sources, self._kinds, self.keys, self._nulls = sources, kinds, keys, nulls
        self._starts = np.cumsum([0, *(source.n_rows for source in sources)])
        keeps = not once and 4 * self.n_rows * len(self.names) <= _KEPT_BYTES
        self._kept: dict[str, FloatArray] | None = {} if keeps else None
        self._locks = {name: Lock() for name in self.names}

    @property
    def n_rows(self) -> int:
        """The number of rows of a whole column."""
        order = self.keys.order
        return int(self._starts[-1]) if order is None else len(order)

    @property
    def at_once(self) -> int:
        """How many columns may be asked for at a time: more would be more memory."""
        return COLUMNS_AT_ONCE if self._kept is None else n_threads()

    def read(self, name: str, low: int, high: int) -> FloatArray:
        """Return the rows [low, high) of a column (`NumberColumns.read`).

        Raises
        ------
        RecordsError
            If a file is not whole, or another one has taken its name.
        """
        if self._kept is None:
            return self._read(name, low, high)
        with self._locks[name]:
            if name not in self._kept:
                values = self._read(name, 0, self.n_rows)
                values.flags.writeable = False
                self._kept[name] = values
            return self._kept[name][low:high]

    def parts(self, name: str, low: int, high: int) -> Iterator[Stretch]:
        """Yield the rows [low, high) of a column part after part (`NumberColumns.parts`)."""
        if self._kept is not None or self.keys.order is not None:
            yield Stretch(low, self.read(name, low, high))
        elif low < high:
            yield from self._parts(name, low, high)

    def _read(self, name: str, low: int, high: int) -> FloatArray:
        if low >= high:
            return np.empty(0, dtype=np.float32)
        if self.keys.order is not None:
            return self._read_sorted(name, self.keys.order)[low:high]
        values = np.empty(high - low, dtype=np.float32)
        for part in self._parts(name, low, high):
            values[part.low - low : part.high - low] = part.values
        return values

    def _parts(self, name: str, low: int, high: int) -> Iterator[Stretch]:
        """Read the files that hold some rows."""
        files = self._files_of(name, low, high)
        read = self._gains if name in self._kinds.counter else self._levels
        yield from _between(read(name, files), low, high)

    def _files_of(self, name: str, low: int, high: int) -> range:
        """Return the files that hold some rows; of a counter those before them, too."""
        last = int(np.searchsorted(self._starts, high))
        if name in self._kinds.counter:
            return range(last)
        return range(int(np.searchsorted(self._starts, low, side="right")) - 1, last)

    def _levels(self, name: str, files: range) -> Iterator[Stretch]:
        """Read some files, a few at a time."""
        nulls: list[int] = []
        for some in self._few_at_a_time(files):
            values = np.empty(self._n_rows_of(some), dtype=np.float32)
            nulls += self._put(name, some, values)
            yield Stretch(int(self._starts[some.start]), values)
        self._note_nulls(name, nulls, files)

    def _gains(self, name: str, files: range) -> Iterator[Stretch]:
        """Read what a counter gained, which depends on all rows before, too."""
        before = np.full(self.keys.n_gpus, np.nan)
        nulls, counts = [], self._counts(name, files)
        for some in self._few_at_a_time(files):
            gained = np.empty(self._n_rows_of(some), dtype=np.float32)
            first = int(self._starts[some.start])
            for file in some:
                values, n_nulls = next(counts)
                nulls.append(n_nulls)
                rows = slice(int(self._starts[file]), int(self._starts[file + 1]))
                gpu, counted = self.keys.gpu_of(rows), self.keys.counted_of(rows)
                room = gained[rows.start - first : rows.stop - first]
                add_increases(values, gpu, counted, before, room)
            yield Stretch(first, gained)
        self._note_nulls(name, nulls, files)

    def _few_at_a_time(self, files: range) -> Iterator[range]:
        """Yield files by the few: one for each thread, and enough rows to be worth a loop."""
        first = files.start
        for file in files:
            few = range(first, file + 1)
            if len(few) >= _threads() and self._n_rows_of(few) >= _PART_ROWS:
                yield few
                first = file + 1
        if first < files.stop:
            yield range(first, files.stop)

    def _n_rows_of(self, files: range) -> int:
        return int(self._starts[files.stop] - self._starts[files.start])

    def _put(self, name: str, files: range, room: npt.NDArray[np.floating]) -> list[int]:
        """Put the values of some files one after another into `room`, file beside file.

        Returns how many values of each file are null.
        """
        start = int(self._starts[files.start])

        def put(file: int) -> int:
            part = room[int(self._starts[file]) - start : int(self._starts[file + 1]) - start]
            return self._put_file(name, file, part)

        return in_threads(put, files, _threads())

    def _put_file(self, name: str, file: int, room: npt.NDArray[np.floating]) -> int:
        """Put the values of one file into `room`; return how many null ones the records have."""
        source = self._sources[file]
        with source.columns() as columns:
            nulls = put_numbers(columns, name, source.name, room, self.keys.order_in(file))
        if name in self._kinds.code:
            nulls += leave_out_no_codes(room)
        if nulls:
            rows = slice(int(self._starts[file]), int(self._starts[file + 1]))
            nulls -= self.keys.missing_left_out(room, rows)
            if name in self._kinds.code:
                room[np.isnan(room)] = 0
        return nulls

    def _counts(
        self, name: str, files: Iterable[int]
    ) -> Iterator[tuple[npt.NDArray[np.float64], int]]:
        """Yield the counts of each file, and how many are null."""

        def counts_of(file: int) -> tuple[npt.NDArray[np.float64], int]:
            room = np.empty(self._sources[file].n_rows, dtype=np.float64)
            return room, self._put_file(name, file, room)

        if _threads() == 1:
            return map(counts_of, files)
        return in_turn(counts_of, files, _threads())

    def _read_sorted(self, name: str, order: IntArray) -> FloatArray:
        """Read a column whose files do not come by time: all of it, then in order."""
        n, files, keys = int(self._starts[-1]), range(len(self._sources)), self.keys
        if name not in self._kinds.counter:
            values = np.empty(n, dtype=np.float32)
            self._note_nulls(name, self._put(name, files, values), files)
            return values[order]
        counts = np.empty(n, dtype=np.float64)
        self._note_nulls(name, self._put(name, files, counts), files)
        counts = counts[order]
        gained, before = np.empty(len(counts), np.float32), np.full(keys.n_gpus, np.nan)
        counted = keys.counted_of(slice(0, n))[order]
        add_increases(counts, keys.gpu_in_order, counted, before, gained)
        return gained

    def _note_nulls(self, name: str, nulls: Sequence[int], files: range) -> None:
        """Note how many values are null, if these files hold all rows: others may have none."""
        if self._n_rows_of(files) == self._starts[-1]:
            self._nulls[name] = sum(nulls)


def _between(parts: Iterable[Stretch], low: int, high: int) -> Iterator[Stretch]:
    """Yield the rows [low, high) of parts."""
    for part in parts:
        start, end = max(part.low, low), min(part.high, high)
        if start < end:
            yield part.between(start, end)


def _threads() -> int:
    """Return how many threads read one column, while others read the next."""
    return max(1, n_threads() // COLUMNS_AT_ONCE)
