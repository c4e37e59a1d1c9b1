"""Serials and times of a table; errors name the file and the column."""

from __future__ import annotations

import pyarrow as pa

from forewarn.features.records.record_table import SERIAL, RecordsError
from forewarn.features.records.text_columns import plain_text
from forewarn.features.records.timestamp_columns import as_nanoseconds
from forewarn.pipelines.storage.files.location import Location

__all__ = ["read_names", "read_serials", "read_times"]


def read_serials(table: pa.Table, path: Location) -> pa.ChunkedArray:
    """Return the serials of a table as text."""
    return read_names(table, SERIAL, path)


def read_names(table: pa.Table, name: str, path: Location) -> pa.ChunkedArray:
    """Return a column of names as text; all null if it is missing."""
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(len(table), pa.string())])
    try:
        return plain_text(table[name], name=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        detail = str(error).splitlines()[0]
        raise RecordsError(
            f"{path}: column `{name}` is {table[name].type}, expected text ({detail})."
        ) from None


def read_times(table: pa.Table, name: str, path: Location) -> pa.ChunkedArray:
    """Return a column of timestamps as nanoseconds; all null if it is missing."""
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(len(table), pa.int64())])
    try:
        return as_nanoseconds(table[name])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        detail = str(error).splitlines()[0]
        raise RecordsError(
            f"{path}: column `{name}` is {table[name].type}, expected a timestamp ({detail})."
        ) from None
