"""The store of records: Parquet files in one folder a date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from forewarn.features.records.assembly import RecordsQuery, assemble
from forewarn.features.records.failures import Failures
from forewarn.features.records.file_check import States
from forewarn.features.records.table import FAILURE, FeatureKinds, Records, RecordsError
from forewarn.features.threads import in_threads
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.storage.failures_table import (
    FAILURES_TABLE,
    INCIDENT_FAILURES,
    read_failures_table,
)
from forewarn.pipelines.storage.out_of_service_table import (
    OUT_OF_SERVICE,
    of_records,
    read_absences,
)
from forewarn.pipelines.storage.parquet_files import ParquetSource, check_memory, open_parquet
from forewarn.pipelines.storage.replaced_files import read_until_still

__all__ = ["RecordStore"]


@dataclass(frozen=True, slots=True)
class RecordStore:
    """A `RECORDS` folder (docs/formats.md, section 1).

    Attributes
    ----------
    folder : Path
    kinds : FeatureKinds
        Columns to read as features.
    interval : Nanoseconds
        Between two records of a GPU.
    groups : tuple of str
        Text columns to read beside the features; a file need not have them.
    """

    folder: Path
    kinds: FeatureKinds
    interval: Nanoseconds
    groups: tuple[str, ...] = ()

    def files(self) -> list[tuple[dt.date, Path]]:
        """Return date and path of every file, in the order of their names.

        Raises
        ------
        RecordsError
            If the folder is not there, holds no partition, or one that is no date.
        """
        if not self.folder.is_dir():
            raise RecordsError(f"{self.folder}: no such folder, expected one of records.")
        files = []
        for partition in sorted(self.folder.glob("date=*")):
            date = _partition_date(partition)
            files += [(date, path) for path in sorted(partition.glob("*.parquet"))]
        files = [(date, path) for date, path in files if path.name[0] not in "._"]
        if not files:
            raise RecordsError(
                f"{self.folder}: holds no records, expected date=YYYY-MM-DD/*.parquet."
            )
        return files

    def columns(self) -> set[str]:
        """Return the columns that every file has."""
        schemas = (open_parquet(path).schema_arrow for _, path in self.files())
        return set.intersection(*(set(schema.names) for schema in schemas))

    def has_failures(self) -> bool:
        """Tell whether anything says which GPUs failed."""
        tables = (self.folder / FAILURES_TABLE, self.folder / INCIDENT_FAILURES)
        return any(path.exists() for path in tables) or FAILURE in self.columns()

    def read(self, start: int | None = None, end: int | None = None) -> Records:
        """Read the records of [start, end).

        Parameters
        ----------
        start, end : int, optional
            Nanoseconds since 1970 UTC.

        Raises
        ------
        RecordsError
            If a file cannot be read or breaks the contract, or no record is left.
        """
        return self._served(read_until_still(lambda: self._read(start, end, ()))[0])

    def read_known(
        self, start: int | None = None, end: int | None = None
    ) -> tuple[Records, Failures]:
        """Read what anybody could know at `end`: the records of [start, end), and all failures.

        Parameters
        ----------
        start, end : int, optional
            Nanoseconds since 1970 UTC.

        Returns
        -------
        Records
        Failures
            Of the GPUs of the records, as the records of all dates before `end` and the failures
            table tell; without `end`, whatever they say of later.

        Raises
        ------
        RecordsError
            As `read`.
        """
        older = () if start is None else [p for date, p in self.files() if date <= _date(start)]
        records, before = read_until_still(lambda: self._read(start, end, older))
        failures = Failures.of_records(records, before).joined(self.reported(records.serials))
        records = self._served(records)
        return records, failures if end is None else failures.known_before(end)

    def _read(
        self, start: int | None, end: int | None, older: Sequence[Path]
    ) -> tuple[Records, States | None]:
        """Read the records of [start, end); of the older files, whose dates begin before, failures.

        Raises
        ------
        ReplacedFileError
            If another file has taken a name meanwhile.
        """
        sources = [ParquetSource(path) for _, path in self._chosen(start, end)]
        n_rows = in_threads(lambda source: source.n_rows, sources)
        _check_labels(sources)
        check_memory(self.folder, sum(n_rows), len(self.kinds.names))
        query = RecordsQuery(str(self.folder), self.kinds, self.interval, self.groups, start, end)
        return assemble(sources, query, [ParquetSource(path) for path in older])

    def _chosen(self, start: int | None, end: int | None) -> list[tuple[dt.date, Path]]:
        """Return the files whose date can hold records of [start, end)."""
        low = dt.date.min if start is None else _date(start)
        high = dt.date.max if end is None else _date(end - 1)
        files = [(date, path) for date, path in self.files() if low <= date <= high]
        if not files:
            raise RecordsError(f"{self.folder}: no records from {low} to {high}.")
        return files

    def reported(self, serials: Sequence[str]) -> Failures:
        """Return the failures of these serials that the tables beside the records have."""
        failures = Failures.none()
        for path in (self.folder / FAILURES_TABLE, self.folder / INCIDENT_FAILURES):
            if path.exists():
                failures = failures.joined(read_failures_table(path, serials))
        return failures

    def _served(self, records: Records) -> Records:
        """Return the records with the spans in which their GPUs were out of service."""
        path = self.folder / OUT_OF_SERVICE
        absences = read_absences(path)
        if not absences:
            return records
        return replace(records, out_of_service=of_records(absences, records, path))


def _partition_date(partition: Path) -> dt.date:
    """Read the date of a partition in its one form, so that no date has two folders."""
    try:
        date = dt.date.fromisoformat(partition.name.removeprefix("date="))
    except ValueError:
        date = None
    if date is None or partition.name != f"date={date.isoformat()}":
        raise RecordsError(f"{partition}: found `{partition.name}`, expected `date=YYYY-MM-DD`.")
    return date


def _date(moment: int) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(days=moment // DAY)


def _check_labels(sources: Sequence[ParquetSource]) -> None:
    """Refuse a data set of which only some files say what failed."""
    without = [source for source in sources if FAILURE not in source.column_names]
    if without and len(without) < len(sources):
        raise RecordsError(
            f"{without[0].path}: column `{FAILURE}` is missing, other files have it."
        )
