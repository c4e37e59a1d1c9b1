"""Conversion of timestamp columns to nanoseconds since 1970 UTC."""

from __future__ import annotations

import pyarrow as pa

from forewarn.features.records.text_columns import is_text, without_dictionary

__all__ = ["as_nanoseconds", "nanoseconds_and_naivety"]


def as_nanoseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert timestamps to nanoseconds since 1970 UTC; null stays null.

    Raises
    ------
    pyarrow.ArrowInvalid
        If the column cannot be read as timestamps.
    """
    column = without_dictionary(column)
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


def nanoseconds_and_naivety(column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, bool]:
    """Convert timestamps to nanoseconds; also return whether they had no time zone."""
    return as_nanoseconds(column), _is_naive(column)


def _is_naive(column: pa.ChunkedArray) -> bool:
    """Tell whether timestamps have no time zone; they are read as UTC."""
    column = without_dictionary(column)
    if not is_text(column.type):
        return _zone(column.type) is None
    try:
        column.cast(pa.string()).cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return False
    return True
