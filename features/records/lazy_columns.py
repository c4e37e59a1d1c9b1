"""Columns of numbers of many files, read on demand and released after use."""

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
"""Number of columns in memory at a time unless all columns are cached."""

_Scalar = TypeVar("_Scalar", bound=np.generic)
_MAX_CACHED_BYTES = 256 * 2**20  # columns of this total size are read once and cached


class RecordSource(Protocol):
    """A file of records that can be opened repeatedly and does not change."""

    @property
    def name(self) -> str:
        """The name of the file, for messages."""
        ...

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        ...

    def columns(self) -> AbstractContextManager[Columns]:
        """Open the columns."""
        ...


class FileRows(NamedTuple):
    """A file with its valid rows; None means all rows."""

    source: RecordSource
    rows: Int64Array | None

    @property
    def n_rows(self) -> int:
        """The number of valid rows."""
        return self.source.n_rows if self.rows is None else len(self.rows)

    def select(self, values: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        """Select the values of the valid rows from those of all rows."""
        return values if self.rows is None else values[self.rows]


class NullCounts(Mapping[str, int]):
    """Number of nulls by column; an unread column is read on access."""

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
        Of the valid rows, file after file.
    nulls : dict of int
        Receives the number of nulls of each column that is read.
    once : bool
        Each column is read only once, so nothing is cached.
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
        """Number of columns that may be read at a time without exceeding the memory budget."""
        return MAX_COLUMNS_IN_MEMORY if self._kept is None else n_threads()

    def read(self, name: str) -> Float32Array:
        """Return a column for all records (`NumberColumns.read`).

        Raises
        ------
        RecordsError
            If a file is damaged or was replaced.
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
            self._nulls[name] = _write_increases(counts, gpu, row, filled, values)
            return values
        as_read = self._as_read(name, np.dtype(np.float32))
        is_code = name in self._kinds.code
        if is_code:
            mask_invalid_codes(as_read)
        self._nulls[name] = _write_levels(as_read, row, filled, is_code, values)
        return values

    def _as_read(self, name: str, kind: np.dtype[np.floating]) -> FloatingArray:
        """Return the values of all valid rows, file after file."""
        values = np.empty(self._starts[-1], dtype=kind)

        def put(number: int) -> None:
            file, part = self._files[number], values[slice(*self._starts[number:][:2])]
            if not len(part):
                return
            whole = part if file.rows is None else np.empty(file.source.n_rows, dtype=kind)
            with file.source.columns() as columns:
                read_numbers(columns, name, file.source.name, whole)
            if file.rows is not None:
                part[:] = file.select(whole)

        map_threads(put, range(len(self._files)), max(1, n_threads() // MAX_COLUMNS_IN_MEMORY))
        return values


@compiled
def _write_levels(
    as_read: Float32Array,
    row: SignedIntArray,
    filled: BoolArray,
    is_code: bool,
    values: Float32Array,
) -> int:
    """Write the value of each record into `values`; return the number of nulls.

    A null event code becomes 0, no event. A filled record has no event either.
    """
    nulls = 0
    for i in range(len(row)):
        value = as_read[row[i]]
        null = np.isnan(value)
        nulls += null and not filled[i]
        values[i] = np.float32(0) if is_code and (null or filled[i]) else value
    return nulls


@compiled
def _write_increases(
    counts: FloatingArray,
    gpu: Int32Array,
    row: SignedIntArray,
    filled: BoolArray,
    increase: Float32Array,
) -> int:
    """Write the increase of a counter since the previous record; return the number of nulls.

    A decrease is a reset to zero. The increase at the first record of a GPU is unknown (NaN); that
    of a filled record is 0.
    """
    nulls = 0
    before = np.nan
    for i in range(len(row)):
        count = counts[row[i]]
        if filled[i]:
            increase[i] = 0
            continue
        if i == 0 or gpu[i] != gpu[i - 1]:
            before = np.nan
        more = count - before
        increase[i] = count if more < 0 else more
        nulls += np.isnan(count)
        before = count
    return nulls
