"""Snapshots: a view of records that does not change while rows land or dates are compacted."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path

from forewarn.features.records.record_table import RecordsError
from forewarn.pipelines.storage.records.consistent_read import ReplacedFileError, read_consistent
from forewarn.pipelines.storage.records.failures_table import FAILURES_TABLE, INCIDENT_FAILURES
from forewarn.pipelines.storage.records.out_of_service_table import OUT_OF_SERVICE
from forewarn.pipelines.storage.records.record_listing import list_records

__all__ = ["keep_snapshot"]

_TABLES = (FAILURES_TABLE, INCIDENT_FAILURES, OUT_OF_SERVICE)


def keep_snapshot(records: Path, folder: Path, last: dt.date) -> None:
    """Link the records up to a date, and the tables next to them, into a snapshot folder.

    Files of records are replaced and never modified, so a hard link preserves the current content
    at no cost. An existing snapshot is kept.

    Parameters
    ----------
    records, folder : Path
    last : datetime.date

    Raises
    ------
    RecordsError
        If there are no records up to that date, or files are replaced at each attempt.
    """
    if not folder.exists():
        read_consistent(lambda: _link_all(records, folder, last))


def _link_all(records: Path, folder: Path, last: dt.date) -> None:
    listed = list_records(records)
    paths = [Path(str(path)) for date, path in listed if date <= last]
    if not paths:
        first = listed[0][0]
        raise RecordsError(f"{records}: holds no records up to {last}, expected some from {first}.")
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    paths += [path for name in _TABLES if (path := records / name).exists()]
    for path in paths:
        _link(path, temporary / path.relative_to(records))
    temporary.rename(folder)


def _link(path: Path, name: Path) -> None:
    name.parent.mkdir(exist_ok=True)
    try:
        os.link(path, name)
    except FileNotFoundError:
        raise ReplacedFileError(path) from None
    except OSError:  # another file system, or a file of another user
        shutil.copy2(path, name)
