"""The table of results of checks: one row per value of a check on a machine."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.errors import InputError
from forewarn.features.telemetry.telemetry_rows import is_host_name

__all__ = ["RESULTS", "STATUSES", "CheckResultsError", "check_results"]

STATUSES: Final = ("ok", "degraded", "failed", "timeout", "not_run", "blind")
"""`degraded`: exit code 1. `failed`: exit code 2, or a value outside the limits. `not_run`: a
program or condition is missing. `blind`: the check ran and showed nothing about the machine."""

RESULTS: Final = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("ns", "UTC"), nullable=False),  # start
        pa.field("machine", pa.string(), nullable=False),
        ("slot", pa.string()),  # GPU, disk or network interface; null for the whole machine
        pa.field("check", pa.string(), nullable=False),
        pa.field("run", pa.string(), nullable=False),  # equal in all results of an inspection
        ("value", pa.float64()),
        ("unit", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        ("seconds", pa.float64()),
        ("versions", pa.string()),  # JSON object of hardware, drivers, and the definition
        ("set", pa.string()),
        ("text", pa.string()),  # the reason of a status, or the text behind a digest
    ]
)
_OPTIONAL: Final = frozenset({"text"})


class CheckResultsError(InputError):
    """Results that cannot be used; the message names the file and the column."""


def check_results(table: pa.Table, source: object) -> pa.Table:
    """Return a table in the schema RESULTS, or reject it.

    Parameters
    ----------
    table : pyarrow.Table
        Columns that RESULTS lacks are dropped; `text` may be missing.
    source : object
        Name of the file, for messages.

    Raises
    ------
    CheckResultsError
        If a column is missing or has another type, a required value is missing, a status or a
        machine's name is invalid, or a value is not finite.
    """
    columns = {field.name: _column(table, field, source) for field in RESULTS}
    unknown = set(pc.unique(columns["status"]).to_pylist()) - set(STATUSES)
    if unknown:
        raise CheckResultsError(
            f"{source}: column `status` has {min(unknown)[:60]!r}, expected one of "
            f"{', '.join(STATUSES)}."
        )
    for machine in pc.unique(columns["machine"]).to_pylist():
        if not is_host_name(machine):
            raise CheckResultsError(
                f"{source}: column `machine` has {machine[:60]!r}, expected a name of letters, "
                "digits, dots and dashes."
            )
    if pc.all(pc.is_finite(columns["value"])).as_py() is False:
        raise CheckResultsError(
            f"{source}: column `value` has a value that is not finite, expected null."
        )
    return pa.table(columns, schema=RESULTS)


def _column(table: pa.Table, field: pa.Field, source: object) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if field.name in _OPTIONAL:
            return pa.chunked_array([pa.nulls(len(table), field.type)])
        raise CheckResultsError(f"{source}: column `{field.name}` is missing.")
    try:
        column = table[field.name].cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise CheckResultsError(
            f"{source}: column `{field.name}` is {table[field.name].type}, expected {field.type}."
        ) from None
    if not field.nullable and column.null_count:
        raise CheckResultsError(
            f"{source}: column `{field.name}` has no value in a row, expected one in each."
        )
    return column
