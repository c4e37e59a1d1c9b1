"""Files of a folder of records: rows by hour, and state of all hours."""

from __future__ import annotations

import datetime as dt
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.time_units import SECONDS_PER_HOUR
from forewarn.pipelines.ingest.quarantine import Quarantine, is_corrupt
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_lock import landing_locked
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["LandingFolder"]


@dataclass(slots=True)
class LandingFolder:
    """Naming, reading and writing of the files of a landing.

    Attributes
    ----------
    folder : Path
    quarantined : list of str
        Unreadable files, with their new location and the reason.
    """

    folder: Path
    quarantined: list[str] = field(default_factory=list)

    def records_file(self, hour: int) -> Path:
        """Return the file of the records of an hour since 1970."""
        date, clock = _names(hour)
        return self.folder / f"date={date}" / f"collected-{clock}.parquet"

    def hour_file(self, part: str, hour: int) -> Path:
        """Return the file of the rows of an hour; `part` is "_readings" or "_events"."""
        date, clock = _names(hour)
        return self.folder / part / f"date={date}" / f"{clock}.parquet"

    def hours(self, part: str) -> list[int]:
        """Return the hours since 1970 that have a file of `part`."""
        paths = (self.folder / part).glob("date=*/[0-9][0-9].parquet")
        return [_hour(path) for path in paths]

    def state_file(self, name: str) -> Path:
        """Return the file of a state table."""
        return self.folder / "_state" / f"{name}.parquet"

    def read(self, path: Path, schema: pa.Schema, *, move: bool = True) -> pa.Table | None:
        """Read a file of the landing; an unreadable one is moved to the quarantine."""
        if not path.exists():
            return schema.empty_table()
        try:
            with pq.ParquetFile(
                arrow_path(path), read_dictionary=[], page_checksum_verification=True
            ) as file:
                return _with_new_columns(file.read(), schema).cast(schema)
        except Exception as error:
            if not is_corrupt(error):
                raise
            if move:
                reason = (str(error).splitlines() or [""])[0][:200]
                self.quarantined.append(Quarantine(self.folder).move_in(path, reason))
            return None

    def write(self, path: Path, table: pa.Table) -> None:
        """Write a file atomically, safe against a power loss."""
        with replacing(path) as temporary, temporary.open("wb") as file:
            pq.write_table(table, file, compression="zstd", write_page_checksum=True)
            file.flush()
            os.fsync(file.fileno())

    def remove_stale_files(self) -> None:
        """Remove the stale temporary files of killed processes."""
        with self.locked():
            for left in self.folder.glob("**/.*.tmp"):
                left.unlink()

    def locked(self) -> AbstractContextManager[None]:
        """Return the lock that lets one process at a time land rows."""
        return landing_locked(self.folder)


def _with_new_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Add null columns that the schema gained after the table was written."""
    names = [name for name in schema.names if name in table.column_names]
    if table.column_names != names:  # it has another schema
        return table
    columns = [
        table[field.name] if field.name in names else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names)


def _hour(path: Path) -> int:
    date = dt.date.fromisoformat(path.parent.name.removeprefix("date="))
    return (date - dt.date(1970, 1, 1)).days * 24 + int(path.stem)


def _names(hour: int) -> tuple[str, str]:
    """Return date and hour as used in file names."""
    moment = dt.datetime.fromtimestamp(hour * SECONDS_PER_HOUR, dt.UTC)
    return moment.date().isoformat(), f"{moment.hour:02}"
