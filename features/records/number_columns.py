"""Conversion of columns of numbers and dates to floats in given arrays; NaN is null."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.compiled import compiled
from forewarn.features.records.record_table import RawTextColumn
from forewarn.features.records.text_columns import encode_texts, is_text, without_dictionary
from forewarn.features.time_units import SECONDS_PER_DAY

__all__ = [
    "convert_dates",
    "convert_numbers",
    "days_since_epoch",
    "mask_invalid_codes",
    "parse_failure_states",
    "to_float32",
]

# Exporters write blank values as 2**47 or nearly 2**63. No value of a GPU comes near them, and one
# such value would dominate every sum.
_BLANK = {np.dtype(np.float32): 2.0**40, np.dtype(np.float64): 2.0**47}
# Types that are read from memory without a cast.
_NATIVE_TYPES = {
    pa.float32(): np.float32,
    pa.float64(): np.float64,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
}


_SMALL_WHOLE = (pa.int8(), pa.int16(), pa.int32())

Number = npt.NDArray[np.float32] | npt.NDArray[np.float64]


def to_float32(column: pa.ChunkedArray) -> Number:
    """Return a column of numbers as float32."""
    values = np.empty(len(column), dtype=np.float32)
    convert_numbers(values, column)
    return values


def convert_numbers(out: Number, column: pa.ChunkedArray) -> int:
    """Write a column of numbers into `out`; return the number of nulls."""
    column = without_dictionary(column)
    if pa.types.is_temporal(column.type) or pa.types.is_nested(column.type):
        raise pa.ArrowInvalid("not a number")
    if column.type not in _NATIVE_TYPES:
        column = column.cast(pa.float64(), safe=False)
    start = nulls = 0
    for chunk in column.chunks:
        valid, content = chunk.buffers()
        values = np.frombuffer(content or b"", dtype=_NATIVE_TYPES[column.type])[chunk.offset :]
        bits = np.frombuffer((chunk.null_count and valid) or b"", dtype=np.uint8)
        part = out[start : start + len(chunk)]
        nulls += _put(values, bits, chunk.offset, _BLANK[out.dtype], part)
        start += len(chunk)
    return nulls


@compiled
def _put(
    values: npt.NDArray[np.generic],
    valid: npt.NDArray[np.uint8],
    offset: int,
    blank: float,
    out: Number,
) -> int:
    """Write values into `out`, NaN for null or blank; return the number of NaN.

    `valid` holds the validity bit of each value from `offset` on; it is empty if all are valid.
    """
    nulls = row = 0
    for i in range(len(out)):
        out[i] = values[i]
        nulls += not abs(out[i]) < blank
        out[i] = out[i] if abs(out[i]) < blank else np.nan
    while row < len(out) and len(valid):
        bit = row + offset
        if bit & 7 == 0 and valid[bit >> 3] == 255:  # eight at a time, since most are valid
            row += 8
            continue
        if not valid[bit >> 3] >> (bit & 7) & 1:
            nulls += not np.isnan(out[row])
            out[row] = np.nan
        row += 1
    return nulls


def parse_failure_states(
    column: pa.ChunkedArray,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return whether each row is failed, and the rows that are neither 0 nor 1 nor null.

    Examples
    --------
    >>> failed, odd = parse_failure_states(pa.chunked_array([[0, 1, None, -1, 0.5, 2]]))
    >>> failed.tolist(), odd.tolist()
    ([False, True, False, False, True, True], [3, 4, 5])
    >>> failed, odd = parse_failure_states(pa.chunked_array([pa.array([0, 1, -1], pa.int8())]))
    >>> failed.tolist(), odd.tolist()
    ([False, True, False], [2])
    """
    if column.type in _SMALL_WHOLE and not column.null_count:  # no value is null or blank
        whole = column.to_numpy()
        return whole > 0, np.flatnonzero(whole & ~whole.dtype.type(1))
    states = to_float32(column)
    return states > 0, np.flatnonzero(~((states == 0) | (states == 1) | np.isnan(states)))


@compiled
def mask_invalid_codes(codes: Number) -> int:
    """Replace invalid event codes, other than whole numbers from 0 on, by NaN; count them."""
    odd = 0
    for row in range(len(codes)):
        if codes[row] < 0 or (codes[row] != np.floor(codes[row]) and not np.isnan(codes[row])):
            codes[row] = np.nan
            odd += 1
    return odd


def _days(values: pa.ChunkedArray) -> npt.NDArray[np.float32]:
    """Convert dates of any type to days since 1970."""
    values = without_dictionary(values)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        raise pa.ArrowInvalid("a number is not a date")
    if is_text(values.type):
        values = pc.if_else(pc.equal(values, ""), None, values)
    seconds = values.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).cast(pa.float64())
    return np.asarray(seconds.to_numpy() / SECONDS_PER_DAY, dtype=np.float32)


@lru_cache(64)  # files of most dates share their texts
def _days_of_texts(texts: tuple[str, ...]) -> npt.NDArray[np.float32]:
    days = _days(pa.chunked_array([pa.array(texts, pa.string())]))
    return np.append(days, np.float32(np.nan))


def days_since_epoch(column: RawTextColumn) -> npt.NDArray[np.float32]:
    """Convert texts of dates to days since 1970; NaN is null."""
    return _days_of_texts(column.texts)[column.codes]


def convert_dates(out: Number, column: pa.ChunkedArray) -> int:
    """Write a column of dates into `out`; return the number of nulls."""
    if is_text(column.type):
        # Few distinct texts occur in many rows: parse each once.
        out[:] = days_since_epoch(encode_texts(column))
    else:
        out[:] = _days(column)
    return int(np.count_nonzero(np.isnan(out)))
