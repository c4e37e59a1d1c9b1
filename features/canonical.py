"""The check at the border: the needed columns of one file as arrays that the inside trusts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.compiled import compiled
from forewarn.features.records import (
    FAILURE,
    SERIAL,
    TIMESTAMP,
    BoolArray,
    CodeArray,
    Column,
    FeatureKinds,
    IntArray,
    RecordsError,
)

__all__ = ["Part", "check_part", "is_text", "moments"]

# Exporters write blank values as 2**47 or 2**63 less a little; nothing that is read of a GPU gets
# near them, and one such reading would swallow the digits of all that is added up with it.
_BLANK = {pa.float32(): 2.0**40, pa.float64(): 2.0**47}

Number = npt.NDArray[np.float32] | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one file, column by column.

    Attributes
    ----------
    time : ndarray of shape (n,), int64
    keep : ndarray of shape (n,), bool
        The row has a serial and a timestamp, within the limits asked for.
    failed : ndarray of shape (n,), bool
    numbers : dict of ndarray of shape (n,)
        float32, counters float64; NaN is null.
    texts : dict of Column
    n_rows : int
        Rows within the limits, those without keys counted.
    naive_time : bool
        The timestamps had no zone.
    """

    time: IntArray
    keep: BoolArray
    failed: BoolArray
    numbers: dict[str, Number]
    texts: dict[str, Column]
    n_rows: int
    naive_time: bool

    def failed_serials(self) -> set[str]:
        """Return the serials of the GPUs with a failed record."""
        serials = self.texts[SERIAL]
        return {serials.texts[i] for i in np.unique(serials.codes[self.failed & self.keep])}

    def rows_of(
        self, place: Mapping[str, int], first: int, last: int
    ) -> tuple[CodeArray, IntArray, BoolArray]:
        """Return number, time and state of the records of some serials before and after a span.

        Parameters
        ----------
        place : mapping
            Number of each serial.
        first, last : int
            The span, nanoseconds.
        """
        serials = self.texts[SERIAL]
        number = np.array([*(place.get(text, -1) for text in serials.texts), -1], dtype=np.int32)
        gpu = number[serials.codes]
        outside = (self.time < first) | (self.time > last)
        rows = np.flatnonzero((gpu >= 0) & self.keep & outside)
        return gpu[rows], self.time[rows], self.failed[rows]


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a column of this type holds text, plain or as a dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without a dictionary."""
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column


def _text(column: pa.ChunkedArray) -> Column:
    if pa.types.is_nested(column.type):
        raise pa.ArrowInvalid("not text")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if column.type.value_type != pa.string():
        column = column.cast(pa.dictionary(pa.int32(), pa.string()))
    array = column.chunk(0) if column.num_chunks == 1 else _one_chunk(column)
    codes = pc.fill_null(array.indices.cast(pa.int32()), -1).to_numpy(zero_copy_only=False)
    texts = array.dictionary.to_pylist()
    if None in texts:
        codes = np.where(codes == texts.index(None), -1, codes).astype(np.int32)
        texts[texts.index(None)] = ""
    return Column(codes, tuple(texts))


def _one_chunk(column: pa.ChunkedArray) -> pa.DictionaryArray:
    chunks = [
        pa.DictionaryArray.from_arrays(
            chunk.indices.cast(pa.int32()), chunk.dictionary.cast(pa.string())
        )
        for chunk in column.chunks
    ]
    array = pa.chunked_array(chunks, pa.dictionary(pa.int32(), pa.string()))
    array = array.unify_dictionaries().combine_chunks()
    return array if isinstance(array, pa.DictionaryArray) else array.chunk(0)


def moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of timestamps as nanoseconds since 1970 UTC; null stays null.

    Raises
    ------
    pyarrow.ArrowInvalid
        If it is none and cannot be read as such.
    """
    column = _plain(column)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        raise pa.ArrowInvalid("a number has no unit of time")
    if is_text(column.type):
        column = column.cast(pa.string())
        try:
            column = column.cast(pa.timestamp("ns"))
        except pa.ArrowInvalid:
            column = column.cast(pa.timestamp("ns", "UTC"))
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s"))
    return column.cast(pa.timestamp("ns", _zone(column.type))).cast(pa.int64())


def _zone(kind: pa.DataType) -> str | None:
    return kind.tz if pa.types.is_timestamp(kind) else None


def _is_naive(column: pa.ChunkedArray) -> bool:
    """Tell whether timestamps come without a zone, so that UTC must be meant."""
    column = _plain(column)
    if not is_text(column.type):
        return _zone(column.type) is None
    try:
        column.cast(pa.string()).cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return False
    return True


def _number(column: pa.ChunkedArray, kind: pa.DataType) -> Number:
    column = _plain(column)
    if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
        raise pa.ArrowInvalid("not a number")
    if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
        column = column.cast(pa.float64())
    column = column.cast(kind, safe=False)
    # A column of one chunk without nulls needs no copy.
    values: Number = (column.chunk(0) if column.num_chunks == 1 else column).to_numpy(
        zero_copy_only=False
    )
    return _without_blanks(values, _BLANK[kind]) if _has_blank(values, _BLANK[kind]) else values


@compiled
def _has_blank(values: Number, limit: float) -> bool:
    """Tell whether a number reaches the limit."""
    found = False
    for value in values:
        found |= abs(value) >= limit
    return found


def _without_blanks(values: Number, limit: float) -> Number:
    values = values.copy()
    values[~(np.abs(values) < limit)] = np.nan
    return values


def _days(values: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """Return dates of any form as days since 1970."""
    values = _plain(values)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        raise pa.ArrowInvalid("a number is no date")
    if is_text(values.type):
        values = pc.if_else(pc.equal(values, ""), None, values)
    seconds = values.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).cast(pa.float64())
    return np.asarray(seconds.to_numpy() / 86_400.0, dtype=np.float32)


def _dates(column: pa.ChunkedArray) -> Number:
    if not is_text(column.type):
        return _days(column)
    # A text of a date stands for thousands of rows: read each text once.
    encoded = _text(column)
    days = _days(pa.chunked_array([pa.array(encoded.texts, pa.string())]))
    return np.append(days, np.float32(np.nan))[encoded.codes]


_Converted = TypeVar("_Converted")


def _convert(
    table: pa.Table,
    name: str,
    work: Callable[[pa.ChunkedArray], _Converted],
    expected: str,
    file: str,
) -> _Converted:
    """Convert one column, or say which file and column cannot be."""
    if name not in table.column_names:
        found = ", ".join(table.column_names)
        raise RecordsError(f"{file}: column `{name}` is missing, found {found}.")
    try:
        return work(table[name])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        detail = str(error).splitlines()[0]
        kind = table[name].type
        raise RecordsError(
            f"{file}: column `{name}` is {kind}, expected {expected} ({detail})."
        ) from None


def check_part(
    table: pa.Table,
    *,
    file: str,
    kinds: FeatureKinds,
    optional: Sequence[str] = (),
    start: int | None = None,
    end: int | None = None,
) -> Part:
    """Check and convert the needed columns of one file.

    Parameters
    ----------
    table : pyarrow.Table
        As read; columns that nobody named are left out.
    file : str
        For messages.
    kinds : FeatureKinds
    optional : sequence of str
        Text columns to keep where they are there: `machine_id`, `slot` and groups of peers.
    start, end : int, optional
        Only rows of [start, end), nanoseconds since 1970 UTC.

    Raises
    ------
    RecordsError
        If a needed column is missing or cannot be converted.
    """

    def number(column: pa.ChunkedArray) -> Number:
        return _number(column, pa.float32())

    def counter(column: pa.ChunkedArray) -> Number:
        return _number(column, pa.float64())

    times = _convert(table, TIMESTAMP, moments, "a timestamp", file)
    texts = {SERIAL: _convert(table, SERIAL, _text, "text", file)}
    present = [name for name in optional if name in table.column_names]
    for name in dict.fromkeys((*kinds.categorical, *present)):
        texts[name] = _convert(table, name, _text, "text", file)
    numbers = {
        name: _convert(table, name, work, expected, file)
        for work, expected, names in (
            (number, "a number", (*kinds.float, *kinds.binary, *kinds.code)),
            (counter, "a number", kinds.counter),
            (_dates, "an ISO date", kinds.date),
        )
        for name in names
    }
    failed = np.zeros(len(table), dtype=bool)
    if FAILURE in table.column_names:
        failed = _convert(table, FAILURE, number, "0 or 1", file) > 0
    keep = (texts[SERIAL].codes >= 0) & times.is_valid().to_numpy()
    time = pc.fill_null(times, 0).to_numpy()
    n_rows, n_kept = len(keep), int(keep.sum())
    if start is not None or end is not None:
        low = -(2**63) if start is None else start
        high = 2**63 - 1 if end is None else end
        within = (time >= low) & (time < high)
        n_rows -= n_kept
        keep &= within
        n_rows += int(keep.sum())
    return Part(time, keep, failed, numbers, texts, n_rows, _is_naive(table[TIMESTAMP]))
