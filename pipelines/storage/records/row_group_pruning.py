"""Row group pruning: selection of the row groups of a span by their statistics."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.record_table import SERIAL, TIMESTAMP

__all__ = ["matching_row_groups"]


def matching_row_groups(
    metadata: pq.FileMetaData, schema: pa.Schema, start: int | None, end: int | None
) -> list[int] | None:
    """Return the row groups that can hold rows of [start, end); None means all.

    A row group is skipped only if its statistics show that each row has a serial and a timestamp
    outside the span, because rows without either are counted everywhere.

    Parameters
    ----------
    metadata : FileMetaData
    schema : Schema
    start, end : int, optional
        Nanoseconds since 1970 UTC.
    """
    keys = [schema.get_field_index(name) for name in (SERIAL, TIMESTAMP)]
    known = all(index >= 0 for index in keys) and pa.types.is_timestamp(schema.types[keys[1]])
    if (start is None and end is None) or not known or metadata.num_columns != len(schema):
        return None
    low, high = -(2**63) if start is None else start, 2**63 - 1 if end is None else end
    groups = [
        number
        for number in range(metadata.num_row_groups)
        if not _lies_outside(metadata.row_group(number), keys, low, high)
    ]
    return None if len(groups) == metadata.num_row_groups else groups


def _lies_outside(group: pq.RowGroupMetaData, keys: list[int], low: int, high: int) -> bool:
    columns = [group.column(index).statistics for index in keys]
    if any(column is None or not column.has_null_count or column.null_count for column in columns):
        return False
    if not columns[1].has_min_max:
        return False
    first, last = (pd.Timestamp(value) for value in (columns[1].min, columns[1].max))
    # A timestamp without a zone is UTC.
    return bool(last.as_unit("ns").value < low or first.as_unit("ns").value >= high)
