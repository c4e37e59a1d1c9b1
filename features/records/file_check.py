"""Validation of one file: the needed columns as arrays that other modules can trust."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.array_types import (
    BoolArray,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
)
from forewarn.features.compiled import compiled
from forewarn.features.records.fleet_slices import assign_slices
from forewarn.features.records.number_columns import (
    convert_dates,
    convert_numbers,
    parse_failure_states,
)
from forewarn.features.records.record_table import (
    FAILURE,
    MACHINE,
    SERIAL,
    TIMESTAMP,
    FeatureKinds,
    RawTextColumn,
    RecordsError,
)
from forewarn.features.records.text_columns import (
    encode_names,
    encode_names_into,
    encode_texts_into,
)
from forewarn.features.records.timestamp_columns import nanoseconds_and_naivety

__all__ = [
    "SPARSE_COLUMNS",
    "Columns",
    "Keys",
    "States",
    "Values",
    "check_keys",
    "check_values",
    "missing_column",
    "read_numbers",
]

SPARSE_COLUMNS = ("gpu_error",)
"""Columns of event codes that a file has only if there was an event."""


class Columns(Protocol):
    """The columns of a file: a table, or a reader that loads columns on demand."""

    column_names: list[str]

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, name: str, /) -> pa.ChunkedArray:
        """Return a column."""
        ...


class States(NamedTuple):
    """Failure states of GPUs: GPU number, time, and whether it was failed."""

    gpu: Int32Array
    time: Int64Array
    failed: BoolArray

    @classmethod
    def joined(cls, parts: Sequence[States]) -> States:
        """Concatenate the rows of all parts."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    @classmethod
    def from_changes(cls, gpu: Int32Array, time: Int64Array, failed: BoolArray) -> States:
        """Return the first row of each GPU and the rows at which its state changes.

        Rows are sorted by GPU and time. No failure starts or ends between two changes, and most
        GPUs never fail.
        """
        changes = np.append(True, (gpu[1:] != gpu[:-1]) | (failed[1:] != failed[:-1]))
        rows = np.flatnonzero(changes[: len(gpu)])
        return cls(gpu[rows], time[rows], failed[rows])


@dataclass(frozen=True, slots=True)
class Keys:
    """Serial, time and state of each row of one file.

    Attributes
    ----------
    serial : RawTextColumn
    time : ndarray of shape (n,), int64
    keep : ndarray of shape (n,), bool
        The row has a serial and a timestamp, within the requested limits.
    failed : ndarray of shape (n,), bool
    n_rows : int
        Rows within the limits, including rows without keys.
    naive_time : bool
        The timestamps had no time zone.
    odd : ndarray, int64
        Rows whose `failure` is neither 0 nor 1 nor null.
    """

    serial: RawTextColumn
    time: Int64Array
    keep: BoolArray
    failed: BoolArray
    n_rows: int
    naive_time: bool
    odd: Int64Array

    @property
    def n_odd_states(self) -> int:
        """Number of kept rows whose `failure` is neither 0 nor 1 nor null."""
        return int(np.count_nonzero(self.keep[self.odd]))

    def in_slices(self, first: int, last: int) -> Keys:
        """Return the keys without the rows of GPUs outside the slices [first, last)."""
        slices = assign_slices(self.serial.texts)
        return self._of_gpus((slices >= first) & (slices < last))

    def of_serials(self, serials: Set[str]) -> Keys:
        """Return the keys without the rows of other GPUs."""
        return self._of_gpus(np.array([text in serials for text in self.serial.texts], np.bool_))

    def _of_gpus(self, inside: BoolArray) -> Keys:
        if inside.all():
            return self
        keep = self.keep & np.append(inside, False)[self.serial.codes]
        return replace(self, keep=keep, n_rows=int(np.count_nonzero(keep)))

    def failed_serials(self) -> set[str]:
        """Return the serials of the GPUs with a failed record."""
        return {self.serial.texts[i] for i in np.unique(self.serial.codes[self.failed & self.keep])}

    def states_of(self, number: Int32Array) -> States:
        """Return the states of the GPUs whose text has a number (`map_texts`)."""
        codes = self.serial.codes
        rows = np.flatnonzero((number >= 0)[codes])
        rows = rows[self.keep[rows]]
        return States(number[codes[rows]], self.time[rows], self.failed[rows])


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one file other than its keys.

    Attributes
    ----------
    numbers : dict of ndarray of shape (n,), float32
        NaN is null.
    counts : dict of ndarray of shape (n,), float64
        The counters; NaN is null.
    nulls : dict of int
        Number of nulls by column.
    texts : dict of RawTextColumn
    """

    numbers: dict[str, Float32Array]
    counts: dict[str, Float64Array]
    nulls: dict[str, int]
    texts: dict[str, RawTextColumn]


_Converted = TypeVar("_Converted")


def _convert(
    table: Columns,
    name: str,
    work: Callable[[pa.ChunkedArray], _Converted],
    expected: str,
    file: str,
) -> _Converted:
    """Convert one column; an error names the file and the column."""
    if name not in table.column_names:
        raise missing_column(file, name, table.column_names)
    column = table[name]
    try:
        return work(column)
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        pa.ArrowTypeError,
        UnicodeDecodeError,
    ) as error:
        detail = str(error).splitlines()[0]
        kind = column.type
        raise RecordsError(
            f"{file}: column `{name}` is {kind}, expected {expected} ({detail})."
        ) from None


def missing_column(file: str, name: str, present: Sequence[str]) -> RecordsError:
    """Return the error for a missing column."""
    return RecordsError(f"{file}: column `{name}` is missing, found {', '.join(present)}.")


def read_numbers(table: Columns, name: str, file: str, out: npt.NDArray[Any]) -> int:
    """Read a column of numbers into `out`, NaN for null; return the number of nulls.

    A column of SPARSE_COLUMNS that is missing is all null.

    Raises
    ------
    RecordsError
        If the column is missing or cannot be converted.
    """
    if name in SPARSE_COLUMNS and name not in table.column_names:
        out.fill(np.nan)
        return len(out)
    return _convert(table, name, partial(convert_numbers, out), "a number", file)


def check_keys(
    table: Columns,
    *,
    file: str,
    start: int | None = None,
    end: int | None = None,
) -> Keys:
    """Validate and convert the serial, the timestamp and, if present, `failure`.

    Parameters
    ----------
    table : Columns
        As read.
    file : str
        For messages.
    start, end : int, optional
        Only rows of [start, end), nanoseconds since 1970 UTC.

    Raises
    ------
    RecordsError
        If a column is missing or cannot be converted.
    """
    times, naive = _convert(table, TIMESTAMP, nanoseconds_and_naivety, "a timestamp", file)
    serial = _convert(table, SERIAL, encode_names, "text", file)
    failed, odd = np.zeros(len(table), dtype=bool), np.zeros(0, dtype=np.int64)
    if FAILURE in table.column_names:
        failed, odd = _convert(table, FAILURE, parse_failure_states, "0 or 1", file)
    codes = serial.codes
    if times.null_count:
        codes = np.where(times.is_valid().to_numpy(), codes, np.int32(-1))
        times = pc.fill_null(times, 0)
    time, keep = times.to_numpy(), np.empty(len(codes), dtype=np.bool_)
    first = -(2**63) if start is None else start
    last = 2**63 - 1 if end is None else end - 1
    n_rows = _mark_kept(codes, time, (first, last), keep)
    return Keys(serial, time, keep, failed, n_rows, naive, odd)


@compiled
def _mark_kept(
    codes: Int32Array, time: Int64Array, limits: tuple[int, int], keep: BoolArray
) -> int:
    """Mark rows with a code within the limits; return how many are inside or have no code."""
    first, last = limits
    n_rows = 0
    for row in range(len(codes)):
        keep[row] = codes[row] >= 0 and first <= time[row] <= last
        n_rows += keep[row] or codes[row] < 0
    return n_rows


def check_values(
    table: Columns,
    *,
    file: str,
    kinds: FeatureKinds,
    optional: Sequence[str] = (),
) -> Values:
    """Validate and convert the columns other than the keys.

    Parameters
    ----------
    table : Columns
        As read; other columns are ignored.
    file : str
        For messages.
    kinds : FeatureKinds
    optional : sequence of str
        Text columns to read if present: `machine_id`, `slot` and peer groups.

    Raises
    ------
    RecordsError
        If a needed column is missing or cannot be converted.
    """
    n, texts, nulls = len(table), {}, {}
    numbers = {
        name: np.empty(n, dtype=np.float32)
        for name in (*kinds.float, *kinds.binary, *kinds.code, *kinds.date)
    }
    counts = {name: np.empty(n, dtype=np.float64) for name in kinds.counter}
    present = [name for name in optional if name in table.column_names]
    for name in dict.fromkeys((*kinds.categorical, *present)):
        put_text = encode_names_into if name == MACHINE else encode_texts_into
        into = partial(put_text, np.empty(n, dtype=np.int32))
        texts[name] = _convert(table, name, into, "text", file)
    for name, values in (numbers | counts).items():
        if name in kinds.date:
            put_dates = partial(convert_dates, values)
            nulls[name] = _convert(table, name, put_dates, "an ISO date", file)
        else:
            nulls[name] = read_numbers(table, name, file, values)
    return Values(numbers, counts, nulls, texts)
