"""Columns of numbers in many files, each read when it is asked for, and let go of again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forewarn.features.array_types import (
    BoolArray,
    Float32Array,
    FloatingArray,
    Int32Array,
    Int64Array,
    SignedIntArray,
)
from forewarn.features.compiled import compiled
from forewarn.features.records.file_check import Columns, read_numbers
from forewarn.features.records.number_columns import mask_invalid_codes
from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.records.row_cleaning import CleanRows
from forewarn.features.threads import map_threads, n_threads

__all__ = ["MAX_COLUMNS_IN_MEMORY", "FileRows", "LazyColumns", "NullCounts", "RecordSource"]

MAX_COLUMNS_IN_MEMORY = 2
"""Columns of numbers that may be in memory at a time, where not all of them are kept."""

_Scalar = TypeVar("_Scalar", bound=np.generic)
_MAX_CACHED_BYTES = 256 * 2**20  # columns that take no more in all are read once and kept


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


class FileRows(NamedTuple):
    """A file, and which of its rows count; None stands for all."""

    source: RecordSource
    rows: Int64Array | None

    @property
    def n_rows(self) -> int:
        """How many rows count."""
        return self.source.n_rows if self.rows is None else len(self.rows)

    def of(self, values: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        """Return the values, of all rows, of those that count."""
        return values if self.rows is None else values[self.rows]


class NullCounts(Mapping[str, int]):
    """How many values of each column are null; one that was not read yet is read for it."""

    def __init__(self, columns: LazyColumns, names: Sequence[str], known: dict[str, int]) -> None:
        self._columns, self._names, self._known = columns, names, known

    def __getitem__(self, name: str) -> int:
        if name not in self._known and name in self._names:
            self._columns.read(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class LazyColumns:
    """The columns of numbers of all files (`NumberColumns`).

    Parameters
    ----------
    files : sequence of FileRows
    kinds : FeatureKinds
    clean : CleanRows
        Of the rows that count, file after file.
    nulls : dict of int
        Filled in: how many values of a column are null, once it was read.
    once : bool
        Each column is asked for once, so that not even few are kept.
    """

    def __init__(
        self,
        files: Sequence[FileRows],
        kinds: FeatureKinds,
        clean: CleanRows,
        nulls: dict[str, int],
        *,
        once: bool = False,
    ) -> None:
        self.names = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code)
        self._files, self._kinds, self._clean, self._nulls = files, kinds, clean, nulls
        self._starts = np.cumsum([0, *(file.n_rows for file in files)]).tolist()
        keeps = not once and 4 * len(clean.row) * len(self.names) <= _MAX_CACHED_BYTES
        self._kept: dict[str, Float32Array] | None = {} if keeps else None
        self._locks = {name: Lock() for name in self.names}

    @property
    def at_once(self) -> int:
        """How many columns may be asked for at a time: more would be more memory."""
        return MAX_COLUMNS_IN_MEMORY if self._kept is None else n_threads()

    def read(self, name: str) -> Float32Array:
        """Return a column at all records (`NumberColumns.read`).

        Raises
        ------
        RecordsError
            If a file is not whole, or another one has taken its name.
        """
        if self._kept is None:
            return self._read(name)
        with self._locks[name]:
            if name not in self._kept:
                values = self._read(name)
                values.flags.writeable = False
                self._kept[name] = values
            return self._kept[name]

    def _read(self, name: str) -> Float32Array:
        gpu, row, filled = self._clean.gpu, self._clean.row, self._clean.filled
        values = np.empty(len(row), dtype=np.float32)
        if name in self._kinds.counter:
            counts = self._as_read(name, np.dtype(np.float64))
            self._nulls[name] = _lay_gains(counts, gpu, row, filled, values)
            return values
        as_read = self._as_read(name, np.dtype(np.float32))
        is_code = name in self._kinds.code
        if is_code:
            mask_invalid_codes(as_read)
        self._nulls[name] = _lay_levels(as_read, row, filled, is_code, values)
        return values

    def _as_read(self, name: str, kind: np.dtype[np.floating]) -> FloatingArray:
        """Return the values of all rows that count, file after file."""
        values = np.empty(self._starts[-1], dtype=kind)

        def put(number: int) -> None:
            file, part = self._files[number], values[slice(*self._starts[number:][:2])]
            if not len(part):
                return
            whole = part if file.rows is None else np.empty(file.source.n_rows, dtype=kind)
            with file.source.columns() as columns:
                read_numbers(columns, name, file.source.name, whole)
            if file.rows is not None:
                part[:] = file.of(whole)

        map_threads(put, range(len(self._files)), max(1, n_threads() // MAX_COLUMNS_IN_MEMORY))
        return values


@compiled
def _lay_levels(
    as_read: Float32Array,
    row: SignedIntArray,
    filled: BoolArray,
    is_code: bool,
    values: Float32Array,
) -> int:
    """Put the value of each record into `values`; return how many are null.

    An event code that is null is 0, none, and a record that was missing has met no event.
    """
    nulls = 0
    for i in range(len(row)):
        value = as_read[row[i]]
        null = np.isnan(value)
        nulls += null and not filled[i]
        values[i] = np.float32(0) if is_code and (null or filled[i]) else value
    return nulls


@compiled
def _lay_gains(
    counts: FloatingArray,
    gpu: Int32Array,
    row: SignedIntArray,
    filled: BoolArray,
    gained: Float32Array,
) -> int:
    """Put what a counter gained since the record before into `gained`; return how many are null.

    A fall is a restart from zero. The first record of a GPU has gained nothing that is known, and
    one that was missing has gained nothing.
    """
    nulls = 0
    before = np.nan
    for i in range(len(row)):
        count = counts[row[i]]
        if filled[i]:
            gained[i] = 0
            continue
        if i == 0 or gpu[i] != gpu[i - 1]:
            before = np.nan
        more = count - before
        gained[i] = count if more < 0 else more
        nulls += np.isnan(count)
        before = count
    return nulls
