"""Columns of timestamps in any form, as nanoseconds since 1970 UTC."""

from __future__ import annotations

import pyarrow as pa

from forewarn.features.records.text_columns import is_text, without_dictionary

__all__ = ["as_nanoseconds", "nanoseconds_and_naivety"]


def as_nanoseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of timestamps as nanoseconds since 1970 UTC; null stays null.

    Raises
    ------
    pyarrow.ArrowInvalid
        If it is none and cannot be read as such.
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
    """Return timestamps as nanoseconds, and whether they came without a zone."""
    return as_nanoseconds(column), _is_naive(column)


def _is_naive(column: pa.ChunkedArray) -> bool:
    """Tell whether timestamps come without a zone, so that UTC must be meant."""
    column = without_dictionary(column)
    if not is_text(column.type):
        return _zone(column.type) is None
    try:
        column.cast(pa.string()).cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return False
    return True
