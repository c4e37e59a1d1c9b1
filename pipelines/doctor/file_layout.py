"""File layout of records, and whether `forewarn compact` is worthwhile."""

from __future__ import annotations

import datetime as dt
import shlex
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.compaction_metadata import is_compacted_name
from forewarn.pipelines.storage.records.parquet_files import open_parquet

__all__ = ["file_layout"]

_MIN_FILES = 8  # per date; opening a file costs as much as reading some ten thousand rows
_MIN_ROWS = 500_000  # per date; above this, reading a single slice of the fleet is worthwhile


def file_layout(records: Location, files: Sequence[tuple[dt.date, Location]]) -> dict[str, Any]:
    """Count the dates worth compacting, except the newest one, which may still be written.

    Parameters
    ----------
    records : Path or RemotePath
    files : sequence of (datetime.date, Path or RemotePath)

    Returns
    -------
    dict
        Number of `dates` and `files` to compact, and the `command`.
    """
    by_date: dict[dt.date, list[Location]] = defaultdict(list)
    for date, path in files:
        by_date[date].append(path)
    past = sorted(by_date)[:-1]
    pays = [by_date[date] for date in past if _is_worth_compacting(by_date[date])]
    return {
        "dates": len(pays),
        "files": sum(map(len, pays)),
        "command": f"forewarn compact --records {shlex.quote(str(records))}",
    }


def _is_worth_compacting(paths: Sequence[Location]) -> bool:
    if len(paths) > _MIN_FILES:
        return True
    if len(paths) == 1 and is_compacted_name(paths[0].name):
        return False
    return sum(int(open_parquet(path).metadata.num_rows) for path in paths) >= _MIN_ROWS
