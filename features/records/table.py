"""GPU records: rows in order of GPU and time, columns as they were read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from forewarn.features.errors import InputError
from forewarn.features.records.out_of_service import OutOfService
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
    "Records",
    "RecordsError",
]

SERIAL, TIMESTAMP, FAILURE = "gpu_serial", "timestamp", "failure"
MACHINE, SLOT = "machine_id", "slot"

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]
CodeArray = npt.NDArray[np.int32]


class RecordsError(InputError):
    """Records that break the contract; the message names the file and the column."""


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


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Counts of the rows that the check left out or filled in, for the report."""

    rows: int = 0
    without_key: int = 0
    doubled: int = 0
    too_close: int = 0
    filled: int = 0
    gaps: int = 0
    naive_time: bool = False
    nulls: Mapping[str, int] = field(default_factory=dict)

    def notes(self) -> list[str]:
        """Return one sentence for each thing that a user should know."""
        counted = {
            "rows without serial or timestamp left out": self.without_key,
            "doubled rows (the last one was kept)": self.doubled,
            "rows closer than half an interval left out": self.too_close,
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

    Only the keys are sorted. The columns lie as they were read, `order` says where: most rows of
    most columns are never looked at one by one, and sorting them would cost more than reading.

    Attributes
    ----------
    interval : int
        Nanoseconds between two records of a GPU.
    serials : tuple of str
        Sorted; `gpu` holds positions in it.
    gpu : ndarray of shape (n,), int32
    time : ndarray of shape (n,), int64
    filled : ndarray of shape (n,), bool
        True where the record was missing and stands for the one before.
    failed : ndarray of shape (n,), bool
        The record itself says that the GPU is failed.
    order : ndarray of shape (n,), int32, or int64 where that is too small
        Row of each record in the columns as read.
    columns : dict of ndarray, float32
        Floats, binaries, event codes (0 = none), dates (days since 1970), and of counters what
        they gained since the GPU's record before (NaN where unknown), as read.
    texts : dict of Column
        Categorical columns, `machine_id`, `slot` and whatever peers are grouped by, as read.
    counters, events : tuple of str
        The columns of counters and of event codes: a filled record has gained and met nothing.
    reborn : ndarray, int64
        Sorted rows, as read, at which a life begins: what counters gained there is not known.
    out_of_service : OutOfService
        When GPUs were kept from work: that they did not fail then is no sign of health.
    """

    interval: int
    serials: tuple[str, ...]
    gpu: CodeArray
    time: IntArray
    filled: BoolArray
    failed: BoolArray
    order: IntArray
    columns: dict[str, FloatArray]
    texts: dict[str, Column]
    counters: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    reborn: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    seen: CheckReport = field(default_factory=CheckReport)
    out_of_service: OutOfService = field(default_factory=OutOfService.none)

    def __len__(self) -> int:
        return len(self.time)

    @property
    def first(self) -> int:
        """The first moment of which there is a record."""
        bounds = self.gpu_bounds()
        return int(self.time[bounds[:-1][np.diff(bounds) > 0]].min())

    @property
    def last(self) -> int:
        """The last moment of which there is a record."""
        bounds = self.gpu_bounds()
        return int(self.time[bounds[1:][np.diff(bounds) > 0] - 1].max())

    def numbers(self, name: str, rows: IntArray, as_read: IntArray | None = None) -> FloatArray:
        """Return a numeric column at `rows`, of any shape, in its unit; NaN is null.

        `as_read` is `order[rows]`, for those who ask for many columns at the same rows.
        """
        as_read = self.order[rows] if as_read is None else as_read
        values = self.columns[name][as_read]
        if name in self.counters and len(self.reborn):
            nearest = np.searchsorted(self.reborn[:-1], as_read)
            values[self.reborn[nearest] == as_read] = np.nan
        if name in self.counters or name in self.events:
            values[self.filled[rows]] = 0
        return values

    def codes(self, name: str, rows: IntArray) -> CodeArray:
        """Return the numbers of a text column at `rows`."""
        return self.texts[name].codes[self.order[rows]]

    def rows_between(self, start: int, end: int) -> IntArray:
        """Return the numbers of the rows of [start, end).

        A filled row whose next record lies outside is left out: that a record was only missing
        is known when the next one has come.
        """
        within = (self.time >= start) & (self.time < end)
        within[:-1] &= ~self.filled[:-1] | within[1:]
        return np.flatnonzero(within)

    def between(self, start: int, end: int) -> Records:
        """Return the records of [start, end)."""
        if len(self) and start <= self.first and self.last < end:
            return self
        rows = self.rows_between(start, end)
        return replace(
            self,
            gpu=self.gpu[rows],
            time=self.time[rows],
            filled=self.filled[rows],
            failed=self.failed[rows],
            order=self.order[rows],
        )

    def gpu_bounds(self) -> IntArray:
        """Return the first row of every GPU and, last, the number of rows: shape (n_gpus + 1,)."""
        # Numbers of the same width: others make it copy all rows first.
        numbers = np.arange(len(self.serials) + 1, dtype=self.gpu.dtype)
        return np.searchsorted(self.gpu, numbers).astype(np.int64)
