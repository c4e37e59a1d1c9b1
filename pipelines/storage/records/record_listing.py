"""Listing of a folder of records: date and path of each file."""

from __future__ import annotations

import datetime as dt

from forewarn.features.records.record_table import RecordsError
from forewarn.features.threads import map_threads
from forewarn.pipelines.storage.files.location import Location, RemotePath
from forewarn.pipelines.storage.files.regular_files import matching_paths

__all__ = ["files_of_date", "list_records"]


def list_records(folder: Location) -> list[tuple[dt.date, Location]]:
    """Return date and path of each file of records, sorted by name.

    Parameters
    ----------
    folder : Path or RemotePath
        RECORDS (formats.md, section 1).

    Raises
    ------
    RecordsError
        If the folder does not exist, has no partition, or one without a valid date.
    UnreadableFolderError
        If the folder or a partition cannot be listed.
    """
    if not folder.is_dir():
        raise RecordsError(f"{folder}: no such folder, expected a folder of records.")
    partitions = _partitions(folder)
    dates = [_partition_date(partition) for partition in partitions]
    in_each = map_threads(_files_in, partitions)  # listing an object store is slow
    files = [(date, path) for date, paths in zip(dates, in_each, strict=True) for path in paths]
    if not files:
        raise RecordsError(f"{folder}: holds no records, expected date=YYYY-MM-DD/*.parquet.")
    return files


def files_of_date(folder: Location, date: dt.date) -> list[Location]:
    """Return the files of one date, sorted by name; empty if it has no folder."""
    return _files_in(folder / f"date={date.isoformat()}")


def _partitions(folder: Location) -> list[Location]:
    if isinstance(folder, RemotePath):
        return [path for path in folder.children() if path.name.startswith("date=")]
    return [*matching_paths(folder, "date=*")]


def _files_in(partition: Location) -> list[Location]:
    if isinstance(partition, RemotePath):
        paths: list[Location] = [p for p in partition.children() if p.name.endswith(".parquet")]
    else:
        paths = [*matching_paths(partition, "*.parquet")]
    return [path for path in paths if path.name[0] not in "._"]


def _partition_date(partition: Location) -> dt.date:
    """Parse the date of a partition in its only valid form, so that no date has two folders."""
    try:
        date = dt.date.fromisoformat(partition.name.removeprefix("date="))
    except ValueError:
        date = None
    if date is None or partition.name != f"date={date.isoformat()}":
        raise RecordsError(f"{partition}: found `{partition.name}`, expected `date=YYYY-MM-DD`.")
    return date
