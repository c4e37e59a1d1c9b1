"""The table of records: keys and texts in memory, columns of numbers read on demand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import (
    BoolArray,
    Float32Array,
    Int32Array,
    Int64Array,
    SignedIntArray,
)
from forewarn.features.errors import InputError
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.time_units import DAY, HOUR

__all__ = [
    "DAY",
    "FAILURE",
    "HOUR",
    "MACHINE",
    "RACK",
    "SERIAL",
    "SLOT",
    "TIMESTAMP",
    "CheckReport",
    "FeatureKinds",
    "NoNumbers",
    "NoRecordsError",
    "NumberColumns",
    "RawTextColumn",
    "Records",
    "RecordsError",
    "TextColumn",
    "code_type",
]

SERIAL, TIMESTAMP, FAILURE = "gpu_serial", "timestamp", "failure"
MACHINE, SLOT, RACK = "machine_id", "slot", "rack"


class RecordsError(InputError):
    """Records that violate the format; the message names the file and the column."""


class NoRecordsError(RecordsError):
    """No row has both a serial and a timestamp."""


@dataclass(frozen=True, slots=True)
class FeatureKinds:
    """Names of the feature columns by kind (formats.md, section 2)."""

    categorical: tuple[str, ...] = ()
    float: tuple[str, ...] = ()
    counter: tuple[str, ...] = ()
    binary: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    date: tuple[str, ...] = ()

    @property
    def numbers(self) -> FeatureKinds:
        """The columns of numbers alone."""
        return replace(self, categorical=(), date=())

    @property
    def names(self) -> tuple[str, ...]:
        """All feature columns, ordered by kind."""
        return (*self.categorical, *self.float, *self.counter, *self.binary, *self.code, *self.date)

    def among(self, columns: Collection[str]) -> FeatureKinds:
        """Return the features that are in `columns`."""
        present = {
            kind: tuple(name for name in getattr(self, kind) if name in columns)
            for kind in self.__slots__
        }
        return FeatureKinds(**present)


@dataclass(frozen=True, slots=True)
class RawTextColumn:
    """A dictionary-encoded text column of a file: `codes` index `texts`; -1 is null."""

    codes: Int32Array
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A dictionary-encoded text column of records.

    Attributes
    ----------
    texts : tuple of str
        Sorted.
    codes : ndarray of shape (n,), int8, int16 or int32
        Positions in `texts`; -1 is null.
    """

    texts: tuple[str, ...]
    codes: SignedIntArray

    @classmethod
    def unknown(cls, texts: tuple[str, ...], n: int) -> TextColumn:
        """Return a column of n nulls."""
        return cls(texts, np.full(n, -1, dtype=np.int8))

    def select(self, rows: Int64Array | slice) -> TextColumn:
        """Return the column of some records."""
        return replace(self, codes=self.codes[rows])

    def renumbered(self, texts: tuple[str, ...]) -> TextColumn:
        """Return the column encoded by other texts; texts that are not among them become null.

        Examples
        --------
        >>> column = TextColumn(("a", "c"), np.array([1, 0, -1]))
        >>> column.renumbered(("a", "b", "c")).codes.tolist()
        [2, 0, -1]
        """
        if texts == self.texts:
            return self
        position = {text: number for number, text in enumerate(texts)}
        number = np.array([*(position.get(t, -1) for t in self.texts), -1])
        return TextColumn(texts, number.astype(code_type(len(texts)))[self.codes])


def code_type(n_texts: int) -> type[np.signedinteger]:
    """Return the narrowest integer type for the codes of `n_texts` texts and -1."""
    return np.int8 if n_texts < 2**7 else np.int16 if n_texts < 2**15 else np.int32


class NumberColumns(Protocol):
    """Columns of numbers that are read on demand."""

    @property
    def names(self) -> Collection[str]:
        """The names of the columns."""
        ...

    @property
    def at_once(self) -> int:
        """Number of columns that may be read at a time."""
        ...

    def read(self, name: str) -> Float32Array:
        """Return a column for all records; a read-only array is cached and shared.

        Counters are returned as increases since the previous record of the GPU.
        """
        ...


@dataclass(frozen=True, slots=True)
class NoNumbers:
    """The empty columns of records that have only keys."""

    names: tuple[str, ...] = ()
    at_once: int = 1

    def read(self, name: str) -> Float32Array:
        """Raise KeyError for any name."""
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Counts of rows that validation dropped or filled, for the report."""

    rows: int = 0
    without_key: int = 0
    doubled: int = 0
    too_close: int = 0
    filled: int = 0
    gaps: int = 0
    odd_states: int = 0
    naive_time: bool = False
    nulls: Mapping[str, int] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return one line for each count that a user should know."""
        counted = {
            "rows without serial or timestamp dropped": self.without_key,
            "duplicate rows dropped (the last one was kept)": self.doubled,
            "rows closer than half an interval dropped": self.too_close,
            "values of `failure` that are neither 0 nor 1 (above 0 is read as failed)": (
                self.odd_states
            ),
            "single missing records filled from the previous record": self.filled,
            "longer gaps, each of which ends a series": self.gaps,
        }
        notes = [f"{count:,} {what}" for what, count in counted.items() if count]
        nulls = [f"{count:,} in `{name}`" for name, count in self.nulls.items() if count]
        notes += [f"nulls: {', '.join(nulls)}"] if nulls else []
        return notes + (["timestamps without a zone were read as UTC"] if self.naive_time else [])


@dataclass(frozen=True, slots=True)
class Records:
    """n records sorted by serial and time, with single missing records filled.

    Keys and texts are in memory. Columns of numbers are read on demand.

    Attributes
    ----------
    interval : int
        Nanoseconds between two records of a GPU.
    serials : tuple of str
        Sorted; GPUs are numbered by position.
    gpu : ndarray of shape (n,), int32
    time : ndarray of shape (n,), int64
    failed : ndarray of shape (n,), bool
        The record marks the GPU as failed.
    filled : ndarray of shape (n,), bool
        The record was missing and repeats the previous one.
    column_row : ndarray of shape (n,)
        Ascending row of each record in `columns`, which may have further rows.
    columns : NumberColumns
        Floats, binaries, event codes (0 = none), and increases of counters since the previous
        record of the GPU (NaN where unknown).
    dates : dict of ndarray of shape (n,), float32
        Days since 1970; NaN is null.
    texts : dict of TextColumn
        Categorical columns, `machine_id`, `slot` and the columns of peer groups.
    counters : tuple of str
    counter_restarts : ndarray, int64
        First records after a failure or repair, where increases of counters are unknown.
    out_of_service : OutOfService
        Spans in which the absence of a failure does not show health.
    """

    interval: int
    serials: tuple[str, ...]
    gpu: Int32Array
    time: Int64Array
    failed: BoolArray
    filled: BoolArray
    column_row: npt.NDArray[np.integer]
    columns: NumberColumns = NoNumbers()
    dates: dict[str, Float32Array] = field(default_factory=dict)
    texts: dict[str, TextColumn] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    counter_restarts: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    seen: CheckReport = field(default_factory=CheckReport)
    out_of_service: OutOfService = field(default_factory=OutOfService.empty)

    def __len__(self) -> int:
        return len(self.time)

    @property
    def first(self) -> int:
        """The time of the first record."""
        return int(self.time.min())

    @property
    def last(self) -> int:
        """The time of the last record."""
        return int(self.time.max())

    def values(self, name: str) -> Float32Array:
        """Read a column of numbers, shape (n,), in its unit; NaN is null.

        Increases of counters are NaN at the records `counter_restarts`.
        """
        values = self.columns.read(name)
        if len(self.column_row) != len(values):
            values = values[self.column_row]
        if name in self.counters and len(self.counter_restarts):
            values = values if values.flags.writeable else values.copy()
            values[self.counter_restarts] = np.nan
        return values

    def numbers(self, name: str, rows: Int64Array) -> Float32Array:
        """Return a column of numbers or dates at `rows`, of any shape.

        The whole column is read on each call.
        """
        return np.asarray((self.dates[name] if name in self.dates else self.values(name))[rows])

    def codes(self, name: str, rows: Int64Array) -> Int32Array:
        """Return the codes of a text column at `rows`, of any shape."""
        return self.texts[name].codes[rows].astype(np.int32)

    def rows_between(self, start: int, end: int) -> Int64Array:
        """Return the rows of [start, end).

        A filled row is excluded if the next record is outside: the gap is known to be a single
        record only once the next record has arrived.
        """
        within = (self.time >= start) & (self.time < end)
        within[:-1] &= ~self.filled[:-1] | within[1:]
        return np.flatnonzero(within)

    def between(self, start: int, end: int) -> Records:
        """Return the records of [start, end) as selected by `rows_between`."""
        if len(self) and start <= self.first and self.last < end:
            return self
        return self.select(self.rows_between(start, end))

    def without_numbers(self) -> Records:
        """Return the records without columns of numbers, which releases their sources."""
        return replace(self, columns=NoNumbers(), seen=CheckReport())

    def select(self, rows: Int64Array) -> Records:
        """Return the records of `rows`, which are ascending."""
        return replace(
            self,
            gpu=self.gpu[rows],
            time=self.time[rows],
            failed=self.failed[rows],
            filled=self.filled[rows],
            column_row=self.column_row[rows],
            dates={name: days[rows] for name, days in self.dates.items()},
            texts={name: column.select(rows) for name, column in self.texts.items()},
            counter_restarts=np.flatnonzero(np.isin(rows, self.counter_restarts)),
        )

    def gpu_bounds(self) -> Int64Array:
        """Return the first row of each GPU, then the number of rows: shape (n_gpus + 1,)."""
        return np.searchsorted(self.gpu, np.arange(len(self.serials) + 1, dtype=np.int32))

    def rows_from(self, gpu: npt.NDArray[np.integer], moment: Int64Array) -> Int64Array:
        """Return the first row of each GPU at or after a moment, else the end of its rows.

        Parameters
        ----------
        gpu, moment : ndarray of shape (m,)
        """
        bounds = self.gpu_bounds()
        rows = np.empty(len(gpu), dtype=np.int64)
        for number, (own, since) in enumerate(zip(gpu.tolist(), moment.tolist(), strict=True)):
            low, high = bounds[own], bounds[own + 1]
            rows[number] = low + np.searchsorted(self.time[low:high], since)
        return rows
