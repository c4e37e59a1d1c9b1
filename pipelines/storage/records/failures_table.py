"""Tables of failures next to the records: from tickets and events, and from incidents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.record_table import SERIAL, RecordsError
from forewarn.features.telemetry.failure_evidence import PRESUMED, PRESUMED_AFTER
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.mapped_columns import with_our_names
from forewarn.pipelines.storage.records.parquet_files import read_parquet
from forewarn.pipelines.storage.records.table_columns import read_names, read_serials, read_times

__all__ = [
    "FAILURES_TABLE",
    "INCIDENT_FAILURES",
    "read_causes",
    "read_failures_table",
    "unknown_until",
]

FAILURES_TABLE = "failures.parquet"
INCIDENT_FAILURES = "incident_failures.parquet"
"""Written by `forewarn respond`: confirmed outcomes and external drains."""


def read_failures_table(
    path: Location, serials: Sequence[str], names: ColumnNames = OUR_NAMES
) -> Failures:
    """Read a failures table (formats.md, section 1) for some serials."""
    table = with_our_names(read_parquet(path), names)
    for name in (SERIAL, "failed_at"):
        if name not in table.column_names:
            raise RecordsError(f"{path}: column `{name}` is missing.")
    failed = read_times(table, "failed_at", path)
    known = pc.coalesce(read_times(table, "known_at", path), failed)
    end = read_times(table, "repaired_at", path)
    end_known = pc.coalesce(read_times(table, "end_known_at", path), end)
    columns = [
        column.filter(failed.is_valid())
        for column in (
            *(failed, pc.fill_null(end, NEVER), known),
            pc.fill_null(pc.if_else(end.is_valid(), end_known, None), NEVER),
            pc.coalesce(unknown_until(table, path), failed),
            read_serials(table, path),
        )
    ]
    gpus = columns.pop().to_pylist()
    gpu = np.arange(len(gpus), dtype=np.int32)
    moments = (column.to_numpy() for column in columns)
    return _renumbered(Failures(gpu, *moments), gpus, serials)


def read_causes(
    path: Location, before: int | None = None, names: ColumnNames = OUR_NAMES
) -> dict[str, list[tuple[int, str]]]:
    """Return time and cause, possibly none, of the failures of each serial.

    Parameters
    ----------
    path : Path or RemotePath
        A failures table, which may not exist.
    before : int, optional
        Only failures that were known before this time.
    names : ColumnNames, optional
        Names of the columns in the file.
    """
    causes: dict[str, list[tuple[int, str]]] = defaultdict(list)
    table = with_our_names(read_parquet(path), names) if path.exists() else None
    if table is None:
        return causes
    failed = read_times(table, "failed_at", path)
    known = pc.coalesce(read_times(table, "known_at", path), failed)
    named = table["cause"].to_pylist() if "cause" in table.column_names else [None] * len(table)
    columns = (read_serials(table, path).to_pylist(), failed.to_pylist(), known.to_pylist(), named)
    for serial, moment, known_at, cause in zip(*columns, strict=True):
        if serial is not None and moment is not None and (before is None or known_at < before):
            causes[str(serial)].append((moment, str(cause or "")))
    return causes


def unknown_until(table: pa.Table, path: Location) -> pa.ChunkedArray:
    """Return the end of unknown health of presumed repairs; null for other failures."""
    failed = read_times(table, "failed_at", path)
    presumed = pc.equal(read_names(table, "end_source", path), PRESUMED)
    until = pc.coalesce(read_times(table, "unknown_until", path), pc.add(failed, PRESUMED_AFTER))
    return pc.if_else(pc.fill_null(presumed, False), until, None)


def _renumbered(failures: Failures, names: Sequence[str], serials: Sequence[str]) -> Failures:
    """Renumber failures by the position of their serials; drop unknown serials."""
    position = {serial: number for number, serial in enumerate(serials)}
    number = np.array([position.get(name, -1) for name in names] or [-1], dtype=np.int32)
    gpu = number[failures.gpu]
    return replace(failures, gpu=gpu).select(gpu >= 0)
