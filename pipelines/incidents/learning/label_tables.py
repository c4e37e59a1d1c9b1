"""Tables of training labels from incidents, stored with the records that retraining reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.errors import InputError
from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.failures import NEVER
from forewarn.features.records.record_table import MACHINE, SERIAL, RecordsError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.learning.gpu_locations import GpuLocations
from forewarn.pipelines.incidents.learning.training_labels import (
    SerialResolver,
    TrainingLabels,
    labels_from_ledger,
)
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_lock import locked
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.pipelines.storage.records.failures_table import INCIDENT_FAILURES
from forewarn.pipelines.storage.records.out_of_service_table import OUT_OF_SERVICE
from forewarn.pipelines.storage.records.parquet_files import read_parquet

__all__ = ["LEDGER", "SLURM", "add_labels", "write_ledger_labels"]

LEDGER: Final = "ledger"
SLURM: Final = "slurm"
"""Who wrote a row: each writer replaces its own rows only."""

_TIME = pa.timestamp("ns", "UTC")
_FAILURES = pa.schema(
    [
        (SERIAL, pa.string()),
        ("failed_at", _TIME),
        ("repaired_at", _TIME),
        ("cause", pa.string()),
        ("known_at", _TIME),
        (MACHINE, pa.string()),
        ("source", pa.string()),
    ]
)
_ABSENCES = pa.schema(
    [
        (MACHINE, pa.string()),
        (SERIAL, pa.string()),
        ("start", _TIME),
        ("end", _TIME),
        ("source", pa.string()),
    ]
)


def write_ledger_labels(
    records: Path,
    ledger: Ledger,
    patterns: Sequence[str],
    *,
    now: Nanoseconds,
    names: ColumnNames = OUR_NAMES,
) -> None:
    """Write the training labels of a ledger to the records folder, if it exists.

    A folder that cannot be written causes a note, not an error.

    Parameters
    ----------
    records : Path
    ledger : Ledger
    patterns : sequence of str
        Reasons of external drains that indicate a failure.
    now : int
        Nanoseconds since 1970 UTC.
    names : ColumnNames, optional
        Names of the columns in the records.
    """
    if not records.is_dir():
        return
    try:
        resolver = SerialResolver(
            GpuLocations(records, names), now, _resolved(records / INCIDENT_FAILURES)
        )
        _write(records, LEDGER, labels_from_ledger(ledger, patterns, resolver), _others)
    except (InputError, OSError) as error:
        note(f"no training labels from incidents were written: {error}")


def add_labels(records: Path, source: str, labels: TrainingLabels) -> None:
    """Add training labels to those of the same source; newer ones replace older ones.

    Raises
    ------
    RecordsError, OSError
        If a table cannot be read or written.
    """
    _write(records, source, labels, _others_and_older)


def _resolved(path: Path) -> dict[tuple[str, int], str] | None:
    """Return the serials resolved before; None if there is no table yet."""
    if not path.exists():
        return None
    rows = _typed(read_parquet(path), _FAILURES, path)
    rows = rows.filter(pc.equal(rows["source"], LEDGER))
    keys = zip(
        rows[MACHINE].to_pylist(), rows["failed_at"].cast(pa.int64()).to_pylist(), strict=True
    )
    return dict(zip(keys, rows[SERIAL].to_pylist(), strict=True))


Remaining = Callable[[pa.Table, pa.Table, str], pa.Table]


def _others(before: pa.Table, new: pa.Table, source: str) -> pa.Table:
    del new
    return before.filter(pc.not_equal(before["source"], source))


def _others_and_older(before: pa.Table, new: pa.Table, source: str) -> pa.Table:
    """Return the rows of other sources, and those of this source without a newer version."""
    begin = "start" if "start" in new.column_names else "failed_at"
    again = {*zip(new[MACHINE].to_pylist(), new[begin].to_pylist(), strict=True)}
    rows = zip(
        *(before[name].to_pylist() for name in ("source", MACHINE, begin)),
        strict=True,
    )
    stays = [by != source or (machine, at) not in again for by, machine, at in rows]
    return before.filter(pa.array(stays, pa.bool_()))


def _write(records: Path, source: str, labels: TrainingLabels, remaining: Remaining) -> None:
    failures = [
        (f.gpu_serial, f.failed_at, f.repaired_at, f.cause, f.known_at, f.machine, source)
        for f in labels.failures
    ]
    absences = [
        (a.machine, a.gpu_serial, a.start, None if a.end == NEVER else a.end, source)
        for a in labels.absences
    ]
    # An empty table records that a search was made without a result.
    tables = (
        (INCIDENT_FAILURES, _FAILURES, failures, bool(labels.without_gpu)),
        (OUT_OF_SERVICE, _ABSENCES, absences, False),
    )
    for name, schema, rows, empty in tables:
        path = records / name
        if rows or empty or path.exists():
            with locked(path.with_name(f".{name}.lock"), "another responder"):
                _replace(path, schema, _table(rows, schema), source, remaining)


def _replace(
    path: Path, schema: pa.Schema, new: pa.Table, source: str, remaining: Remaining
) -> None:
    """Replace the rows of a source in a table; an unchanged table is not written."""
    exists = path.exists()
    before = _typed(read_parquet(path), schema, path) if exists else schema.empty_table()
    joined = pa.concat_tables([remaining(before, new, source), new])
    joined = joined.sort_by([(name, "ascending") for name in schema.names])
    if not exists or not joined.equals(before):
        with replacing(path) as temporary:
            pq.write_table(joined, arrow_path(temporary))


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _typed(table: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """Return a table with our schema, without columns that a person may have added."""
    absent = [name for name in schema.names if name not in table.column_names]
    if absent:
        raise RecordsError(
            f"{path}: column `{absent[0]}` is missing, expected a table written by forewarn."
        )
    return table.select(schema.names).cast(schema)
