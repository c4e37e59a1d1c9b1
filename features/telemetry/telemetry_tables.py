"""The schemas of READINGS and EVENTS, and the validation of their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.telemetry.parsers.kernel_event import MAX_COUNT
from forewarn.features.telemetry.parsers.recovery_action import EVENT_ACTIONS
from forewarn.features.telemetry.telemetry_rows import (
    COUNTERS,
    EVENT_KINDS,
    EVENT_SEVERITIES,
    GAUGES,
    HOST_NUMBERS,
    OPTIONAL_NUMBERS,
    is_host_name,
)

__all__ = [
    "EVENTS",
    "READINGS",
    "TableError",
    "batch_rows",
    "build_table",
    "check_table",
    "drop_duplicates",
]

_TIME = pa.timestamp("ns", "UTC")

# Fields that are not nullable are required in each row.
READINGS = pa.schema(
    [
        pa.field("timestamp", _TIME, nullable=False),
        ("machine_id", pa.string()),
        ("gpu_serial", pa.string()),
        ("gpu_uuid", pa.string()),
        ("pci", pa.string()),
        ("slot", pa.int32()),
        ("gpu_type", pa.string()),
        ("driver_version", pa.string()),
        *((name, pa.float64()) for name in (*GAUGES, "pcie_link_width", *COUNTERS, *HOST_NUMBERS)),
        *((name, pa.float64()) for name in OPTIONAL_NUMBERS),
        ("boot_time", pa.int64()),
        ("log_read", pa.bool_()),
    ]
)
EVENTS = pa.schema(
    [
        pa.field("timestamp", _TIME, nullable=False),
        ("gpu_serial", pa.string()),
        ("machine_id", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        ("code", pa.int32()),
        ("pci", pa.string()),
        ("gpu_uuid", pa.string()),
        ("pid", pa.int64()),
        ("process", pa.string()),
        ("count", pa.int64()),
        ("check", pa.string()),
        ("severity", pa.string()),
        ("action", pa.string()),
        ("raw", pa.string()),
        ("context", pa.string()),
        ("known_at", _TIME),
        ("vouched", pa.string()),
        pa.field("id", pa.string(), nullable=False),
    ]
)
_EVENT_WORDS = {"kind": EVENT_KINDS, "severity": EVENT_SEVERITIES, "action": EVENT_ACTIONS}
# The collector sets `vouched`: `host` for a token bound to hosts, `shared` for a token of any host.
# It is null for files and servers that the site reads itself.
# The limits are the largest lengths of a text; a context holds some log lines.
_MAX_LENGTHS = {"context": 65_536, "raw": 4_096}
_DEFAULT_MAX_LENGTH = 256


class TableError(ValueError):
    """Invalid readings or events; the message names the column and the reason."""


def build_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Build a validated table from JSON rows; keys that the schema lacks are ignored.

    Parameters
    ----------
    rows : sequence of mapping
        Times are nanoseconds since 1970 UTC.
    schema : pyarrow.Schema
        READINGS or EVENTS.

    Raises
    ------
    TableError
        If a row is not an object, or a value has the wrong type.
    """
    if not rows:
        return schema.empty_table()
    if not all(isinstance(row, Mapping) for row in rows):
        raise TableError("a row is not an object, expected an object of columns")
    columns = {}
    for field in schema:
        try:
            values = [row.get(field.name) for row in rows]
            if field.name == "count":  # before Arrow, whose type has no room for larger numbers
                values = [_clamped(value) for value in values]
            columns[field.name] = pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError) as error:
            detail = str(error).splitlines()[0]
            raise TableError(f"column `{field.name}`: expected {field.type} ({detail})") from None
    return check_table(pa.table(columns, schema=schema), schema)


def _clamped(count: Any) -> Any:
    """Clamp a count to its bounds; other types are left to the type check."""
    return max(0, min(count, MAX_COUNT)) if isinstance(count, int) else count


def batch_rows(batch: Any) -> tuple[list[Any], list[Any]]:
    """Return the rows of an agent's batch: `{"readings": [...], "events": [...]}`.

    Raises
    ------
    TableError
        If the batch has another form.
    """
    if not isinstance(batch, Mapping) or not {"readings", "events"} & set(batch):
        raise TableError("expected an object with `readings` or `events`")
    rows = [batch.get(name, []) for name in ("readings", "events")]
    if not all(isinstance(some, list) for some in rows):
        raise TableError("`readings` and `events` are lists of objects")
    return rows[0], rows[1]


def check_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert an untrusted table to the schema, or reject it.

    Unknown columns are dropped; missing columns and numbers that are not finite become null.

    Raises
    ------
    TableError
        If a type cannot be converted, a required value is missing, a text is too long, or a host
        name is invalid.
    """
    columns = {field.name: _column(table, field) for field in schema}
    for field in schema:
        if not field.nullable and columns[field.name].null_count:
            raise TableError(f"column `{field.name}`: a row has no value, expected one in each row")
    for host in pc.unique(columns["machine_id"]).to_pylist():
        if host is not None and not is_host_name(host):
            raise TableError(f"column `machine_id`: {host[:60]!r} is not a host name")
    if schema is EVENTS:
        for name, words in _EVENT_WORDS.items():
            unknown = set(pc.unique(columns[name]).drop_null().to_pylist()) - set(words)
            if unknown:
                raise TableError(f"column `{name}`: {min(unknown)[:60]!r}, expected {words}")
    return pa.table(columns, schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(len(table), field.type)])
    column = table[field.name]
    try:
        if pa.types.is_timestamp(field.type) and pa.types.is_integer(column.type):
            column = column.cast(pa.int64())
        column = column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        detail = str(error).splitlines()[0]
        raise TableError(
            f"column `{field.name}` is {column.type}, expected {field.type} ({detail})"
        ) from None
    if pa.types.is_string(field.type) and len(column) > column.null_count:
        longest, limit = (
            pc.max(pc.utf8_length(column)).as_py(),
            _MAX_LENGTHS.get(field.name, _DEFAULT_MAX_LENGTH),
        )
        if longest > limit:
            raise TableError(
                f"column `{field.name}`: a text of {longest}, expected at most {limit}"
            )
    if field.name == "count":
        column = pc.min_element_wise(column, MAX_COUNT, skip_nulls=False)
        column = pc.max_element_wise(column, 0, skip_nulls=False)
    if pa.types.is_floating(field.type):
        column = pc.if_else(pc.is_finite(column), column, None)
    return column


def drop_duplicates(table: pa.Table, keys: Sequence[str], *, first: bool = False) -> pa.Table:
    """Drop duplicates: of rows with equal keys the last one is kept, or the first.

    Parameters
    ----------
    table : pyarrow.Table
    keys : sequence of str
        Null equals null.
    first : bool
    """
    if not len(table):
        return table
    keep = ~table.select(list(keys)).to_pandas().duplicated(keep="first" if first else "last")
    return table if keep.all() else table.filter(pa.array(np.asarray(keep)))
