"""GPU records: rows in order of GPU and time, columns as they were read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from forewarn.features.errors import InputError
from forewarn.features.records.line import Line
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.records.runs import Runs
from forewarn.features.records.stretches import Stretch
from forewarn.features.time_units import DAY, HOUR

__all__ = [
    "DAY",
    "FAILURE",
    "HOUR",
    "MACHINE",
    "SERIAL",
    "SLOT",
    "TIMESTAMP",
    "CheckReport",
    "Column",
    "FeatureKinds",
    "NoNumbers",
    "NoRecordsError",
    "NumberColumns",
    "Records",
    "RecordsError",
    "TextColumn",
]

SERIAL, TIMESTAMP, FAILURE = "gpu_serial", "timestamp", "failure"
MACHINE, SLOT = "machine_id", "slot"

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]
CodeArray = npt.NDArray[np.int32]


class RecordsError(InputError):
    """Records that break the contract; the message names the file and the column."""


class NoRecordsError(RecordsError):
    """Not one row has a serial and a timestamp."""


@dataclass(frozen=True, slots=True)
class FeatureKinds:
    """The columns that are features, by kind (docs/formats.md, section 2)."""

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
        """Every feature column, in the order of its kind."""
        return (*self.categorical, *self.float, *self.counter, *self.binary, *self.code, *self.date)

    def among(self, columns: Collection[str]) -> FeatureKinds:
        """Return the features that are among `columns`."""
        present = {
            kind: tuple(name for name in getattr(self, kind) if name in columns)
            for kind in self.__slots__
        }
        return FeatureKinds(**present)


@dataclass(frozen=True, slots=True)
class Column:
    """A text column as read: one small number per row, and the texts they stand for; -1 is null."""

    codes: CodeArray
    texts: tuple[str, ...]

    def at(self, rows: slice | IntArray) -> Column:
        """Return the column at some rows."""
        return Column(self.codes[rows], self.texts)


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A text column of records: a small number for each row, and the texts they stand for.

    Attributes
    ----------
    texts : tuple of str
        Sorted.
    runs : Runs
        Their numbers; -1 is null.
    """

    texts: tuple[str, ...]
    runs: Runs


class NumberColumns(Protocol):
    """Columns of numbers, each of which is read when it is asked for."""

    @property
    def names(self) -> Collection[str]:
        """The names of the columns."""
        ...

    @property
    def at_once(self) -> int:
        """How many of them may be asked for at a time."""
        ...

    def read(self, name: str, low: int, high: int) -> FloatArray:
        """Return the rows as read [low, high) of a column; one that may not be written to is kept.

        Counters come as what they gained since the GPU's record before.
        """
        ...

    def parts(self, name: str, low: int, high: int) -> Iterator[Stretch]:
        """Yield the same part after part; each holds until the next one is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class NoNumbers:
    """The columns of records that are keys alone."""

    names: tuple[str, ...] = ()
    at_once: int = 1

    def read(self, name: str, low: int, high: int) -> FloatArray:
        """Refuse whatever is asked for."""
        raise KeyError(f"{name}: rows {low} to {high}")

    def parts(self, name: str, low: int, high: int) -> Iterator[Stretch]:
        """Refuse whatever is asked for."""
        raise KeyError(f"{name}: rows {low} to {high}")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Counts of the rows that the check left out or filled in, for the report."""

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
        """Return one sentence for each thing that a user should know."""
        counted = {
            "rows without serial or timestamp left out": self.without_key,
            "doubled rows (the last one was kept)": self.doubled,
            "rows closer than half an interval left out": self.too_close,
            "values of `failure` that are neither 0 nor 1 (above 0 was read as failed)": (
                self.odd_states
            ),
            "lone missing records filled from the one before": self.filled,
            "longer gaps, each of which ends a series": self.gaps,
        }
        notes = [f"{count:,} {what}" for what, count in counted.items() if count]
        nulls = [f"{count:,} in `{name}`" for name, count in self.nulls.items() if count]
        notes += [f"nulls: {', '.join(nulls)}"] if nulls else []
        return notes + (["timestamps without a zone were read as UTC"] if self.naive_time else [])


@dataclass(frozen=True, slots=True)
class Records:
    """Records of many GPUs, sorted by (serial, time), lone missing ones filled in.

    Only the keys lie in memory, sorted. A column of numbers is read when it is asked for, and lies
    file after file, in each as its rows are taken; `line` says where: most rows of most columns
    are never looked at one by one, and sorting all of them would cost more than reading.

    Attributes
    ----------
    interval : int
        Nanoseconds between two records of a GPU.
    serials : tuple of str
        Sorted; GPUs are numbered by their positions in it.
    line : Line
        GPU, time, state and row as read of each of the n records.
    columns : NumberColumns
        Floats, binaries, event codes (0 = none), and of counters what they gained since the GPU's
        record before (NaN where unknown), as read.
    dates : dict of Runs
        Days since 1970, the bits of a float32; NaN is null.
    texts : dict of TextColumn
        Categorical columns, `machine_id`, `slot` and whatever peers are grouped by.
    counters, events : tuple of str
        The columns of counters and of event codes: a filled record has gained and met nothing.
    reborn : ndarray, int64
        Sorted rows, as read, at which a life begins: what counters gained there is not known.
    out_of_service : OutOfService
        When GPUs were kept from work: that they did not fail then is no sign of health.
    """

    interval: int
    serials: tuple[str, ...]
    line: Line
    columns: NumberColumns = NoNumbers()
    dates: dict[str, Runs] = field(default_factory=dict)
    texts: dict[str, TextColumn] = field(default_factory=dict)
    counters: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    reborn: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    seen: CheckReport = field(default_factory=CheckReport)
    out_of_service: OutOfService = field(default_factory=OutOfService.none)

    def __len__(self) -> int:
        return self.line.n

    @property
    def gpu(self) -> CodeArray:
        """The GPU of each record, shape (n,); it is made anew each time, as those that follow."""
        gpu: CodeArray = self.line.of_each(self.line.gpu)
        return gpu

    @property
    def time(self) -> IntArray:
        """The time of each record, shape (n,)."""
        return self.line.time_of_each()

    @property
    def filled(self) -> BoolArray:
        """Which records were missing and stand for the one before, shape (n,)."""
        return self.line.of_each(self.line.filled)

    @property
    def failed(self) -> BoolArray:
        """Which records say themselves that the GPU is failed, shape (n,)."""
        return self.line.of_each(self.line.failed)

    @property
    def first(self) -> int:
        """The first moment of which there is a record."""
        return int(self.line.time.min())

    @property
    def last(self) -> int:
        """The last moment of which there is a record."""
        return int(self.line.last_time.max())

    def numbers(self, name: str, rows: IntArray) -> FloatArray:
        """Return a column of numbers or dates at `rows`, of any shape, in its unit; NaN is null.

        Of a column of numbers the files that hold these rows are read: ask once for many rows.
        """
        if name in self.dates:
            gpu = self.line.gpu[self.line.run_at(rows)]
            return self.dates[name].at(gpu, self.line.order_at(rows)).view(np.float32)
        as_read, filled = self.line.read_at(rows)
        if not as_read.size:
            return np.empty(as_read.shape, dtype=np.float32)
        stretch = self.stretch(name, int(as_read.min()), int(as_read.max()) + 1)
        values = stretch.at(as_read)
        self.fill_in(name, values, filled)
        return values

    def stretch(self, name: str, low: int, high: int) -> Stretch:
        """Read the rows as read [low, high) of a column of numbers; nobody keeps them.

        What a counter gained where a life begins is not known: NaN.
        """
        return self._without_births(name, Stretch(low, self.columns.read(name, low, high)))

    def stretches(self, name: str, low: int, high: int) -> Iterator[Stretch]:
        """Read the same part after part: what is small stays in a cache while it is worked on.

        Each holds until the next one is asked for.
        """
        for part in self.columns.parts(name, low, high):
            yield self._without_births(name, part)

    def _without_births(self, name: str, stretch: Stretch) -> Stretch:
        """Return a stretch without what counters gained where a life begins."""
        first, last = np.searchsorted(self.reborn, [stretch.low, stretch.high])
        if name in self.counters and first < last:
            return stretch.without(self.reborn[first:last])
        return stretch

    def fill_in(self, name: str, values: FloatArray, filled: BoolArray) -> None:
        """Put 0 where counters and events stand for a missing record: nothing was counted then."""
        if name in self.counters or name in self.events:
            values[filled] = 0

    def codes(self, name: str, rows: IntArray) -> CodeArray:
        """Return the numbers of a text column at `rows`, of any shape."""
        gpu = self.line.gpu[self.line.run_at(rows)]
        return self.texts[name].runs.at(gpu, self.line.order_at(rows))

    def rows_between(self, start: int, end: int) -> IntArray:
        """Return the numbers of the rows of [start, end).

        A filled row whose next record lies outside is left out: that a record was only missing
        is known when the next one has come.
        """
        time, filled = self.time, self.filled
        within = (time >= start) & (time < end)
        within[:-1] &= ~filled[:-1] | within[1:]
        return np.flatnonzero(within)

    def between(self, start: int, end: int) -> Records:
        """Return the records of [start, end), those that `rows_between` numbers."""
        if len(self) and start <= self.first and self.last < end:
            return self
        return replace(self, line=self.line.between(start, end))

    def gpu_bounds(self) -> IntArray:
        """Return the first row of every GPU and, last, the number of rows: shape (n_gpus + 1,)."""
        return self.line.start[self.line.run_bounds(len(self.serials))]
