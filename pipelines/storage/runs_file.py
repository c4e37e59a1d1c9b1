"""The file of runs beside a compacted date: its keys and texts, without one row for each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.file_check import Keys, check_keys, check_values
from forewarn.features.records.key_runs import FEWEST_PER_RUN, KeyRuns, changes_of, find_runs
from forewarn.features.records.table import (
    FAILURE,
    MACHINE,
    SERIAL,
    SLOT,
    TIMESTAMP,
    Column,
    FeatureKinds,
    RecordsError,
)
from forewarn.features.records.text_columns import is_text
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.compacted_form import is_runs_name
from forewarn.pipelines.storage.files.atomic_files import flush, replacing
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.pipelines.storage.files.leftovers import scratch_folder
from forewarn.pipelines.storage.files.location import Location, RemotePath
from forewarn.pipelines.storage.files.regular_files import paths_like
from forewarn.pipelines.storage.parquet_files import ParquetSource
from forewarn.pipelines.storage.replaced_files import ReplacedFileError
from forewarn.pipelines.storage.runs_table import ROWS, STEP, runs_table

__all__ = ["keep_runs"]


def keep_runs(path: Location) -> None:
    """See to it that the runs of a compacted file lie beside it, and those of no other one.

    Where runs cannot stand for its rows the file is empty: a row without serial or time, a state
    that is neither 0 nor 1, or values that change too often.

    Parameters
    ----------
    path : Path or RemotePath

    Raises
    ------
    RecordsError
        If the compacted file cannot be read.
    """
    source = ParquetSource(path)
    runs = source.runs_path
    if runs is None:
        return
    if not _has_whole_runs(source, runs):
        _write(runs_table(_parts(source)), runs)
    for other in _runs_in(runs.parent):
        if other.name != runs.name:
            other.unlink(missing_ok=True)


def _has_whole_runs(source: ParquetSource, path: Location) -> bool:
    """Tell whether the runs are there and can be read to their end; else they are made anew."""
    try:
        source.runs()
    except RecordsError:
        note(f"{path}: is broken, and made anew")
        return False
    return path.exists()


def _write(runs: pa.Table, path: Location) -> None:
    if isinstance(path, RemotePath):
        with scratch_folder() as scratch:
            _write(runs, scratch / path.name)
            path.put(scratch / path.name)
        return
    with replacing(path) as out:
        form = {"compression": "zstd", "write_page_checksum": True}
        pq.write_table(runs, arrow_path(out), row_group_size=max(1, len(runs)), **form)
        flush(out)


def _runs_in(partition: Location) -> list[Location]:
    if isinstance(partition, RemotePath):
        paths: list[Location] = [*partition.children()]
    else:
        paths = [*paths_like(partition, "_*")]
    return [path for path in paths if is_runs_name(path.name)]


def _parts(source: ParquetSource) -> list[KeyRuns]:
    """Return the runs of each row group, nothing where they cannot stand for the rows."""
    names = _text_names(source.schema)
    parts: list[KeyRuns] = []
    for group in range(len(source.rows_of_groups)):
        rows = _Rows.of(source, group, names)
        if rows is not None and not parts and (often := rows.often_changing()):
            names = [name for name in names if name not in often]
            rows = _Rows.of(source, group, names)
        if rows is None:
            return []
        parts.append(rows.runs())
    n_runs = sum(len(part.n_rows) for part in parts)
    return parts if n_runs <= _most_runs(source.n_rows) else []


def _text_names(schema: pa.Schema) -> list[str]:
    """Return the columns beside the keys that are read as texts, whatever is configured."""
    keys = (SERIAL, TIMESTAMP, FAILURE, ROWS, STEP)
    names = [name for name in schema.names if name not in keys]
    return [n for n in names if n in (MACHINE, SLOT) or is_text(schema.field(n).type)]


class _Rows(NamedTuple):
    """Keys and texts of the rows of a row group."""

    keys: Keys
    texts: Mapping[str, Column]

    @classmethod
    def of(cls, source: ParquetSource, group: int, names: Sequence[str]) -> _Rows | None:
        """Read a row group; None where runs cannot stand for it."""
        with source.columns([group]) as columns:
            keys = check_keys(columns, file=source.name)
            if not keys.keep.all() or len(keys.odd):
                return None
            try:
                values = check_values(
                    columns, file=source.name, kinds=FeatureKinds(), optional=names
                )
            except ReplacedFileError:
                raise
            except RecordsError:  # whoever needs that column will be told
                return None
        return cls(keys, values.texts)

    def often_changing(self) -> set[str]:
        """Return the texts that change too often for runs."""
        most = _most_runs(len(self.keys.time)) // 2
        n_changes = {name: changes_of([column.codes]).sum() for name, column in self.texts.items()}
        return {name for name, n in n_changes.items() if n > most}

    def runs(self) -> KeyRuns:
        """Return the runs, of even times if those are few."""
        keys = self.keys
        changes = changes_of(
            [keys.serial.codes, keys.failed, *(c.codes for c in self.texts.values())]
        )
        begin, step = find_runs(changes, keys.time, _most_runs(len(changes)))
        n_rows = np.diff(np.append(begin, len(changes)))
        texts = {name: column.at(begin) for name, column in self.texts.items()}
        return KeyRuns(keys.at(begin), n_rows, step, texts)


def _most_runs(n_rows: int) -> int:
    return -(-n_rows // FEWEST_PER_RUN)
