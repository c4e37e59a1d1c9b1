"""The tables of failures beside the records: what was reported, and what incidents showed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.table import SERIAL, RecordsError
from forewarn.pipelines.storage.parquet_files import read_parquet
from forewarn.pipelines.storage.remote_path import Location
from forewarn.pipelines.storage.table_columns import moments_of, serials_of

__all__ = ["FAILURES_TABLE", "INCIDENT_FAILURES", "read_failures_table"]

FAILURES_TABLE = "failures.parquet"
INCIDENT_FAILURES = "incident_failures.parquet"
"""Written by `forewarn respond`: outcomes that were confirmed, and drains by others."""


def read_failures_table(path: Location, serials: Sequence[str]) -> Failures:
    """Read a failures table (docs/formats.md, section 1); rows of other serials are left out."""
    table = read_parquet(path)
    for name in (SERIAL, "failed_at"):
        if name not in table.column_names:
            raise RecordsError(f"{path}: column `{name}` is missing.")
    failed = moments_of(table, "failed_at", path)
    known = pc.coalesce(moments_of(table, "known_at", path), failed)
    repaired = pc.fill_null(moments_of(table, "repaired_at", path), NEVER)
    columns = [
        column.filter(failed.is_valid())
        for column in (failed, repaired, known, serials_of(table, path))
    ]
    failed_at, repaired_at, known_at = (column.to_numpy() for column in columns[:3])
    names = columns[3].to_pylist()
    gpu = np.arange(len(names), dtype=np.int32)
    return _renumbered(Failures(gpu, failed_at, repaired_at, known_at), names, serials)


def _renumbered(failures: Failures, names: Sequence[str], serials: Sequence[str]) -> Failures:
    """Give failures the positions of their serials; those of unknown serials are left out."""
    position = {serial: number for number, serial in enumerate(serials)}
    number = np.array([position.get(name, -1) for name in names] or [-1], dtype=np.int32)
    gpu = number[failures.gpu]
    moved = Failures(gpu, failures.failed_at, failures.repaired_at, failures.known_at)
    return moved.take(gpu >= 0)
