"""The store of records: Parquet files in one folder a date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from forewarn.features.prediction.instances import Instances
from forewarn.features.records.assembly import RecordsQuery, assemble, read_past
from forewarn.features.records.failures import Failures
from forewarn.features.records.row_cleaning import Spacings
from forewarn.features.records.table import FAILURE, FeatureKinds, Records, RecordsError
from forewarn.features.records.timeline import Timeline, lay_out
from forewarn.features.threads import in_threads
from forewarn.features.time_units import Nanoseconds, date_of
from forewarn.pipelines.storage.failures_table import (
    FAILURES_TABLE,
    INCIDENT_FAILURES,
    read_failures_table,
)
from forewarn.pipelines.storage.file_slice import number_of_slices
from forewarn.pipelines.storage.labelled_files import check_labels
from forewarn.pipelines.storage.out_of_service_table import (
    OUT_OF_SERVICE,
    of_records,
    read_absences,
)
from forewarn.pipelines.storage.parquet_files import ParquetSource, check_memory
from forewarn.pipelines.storage.record_listing import list_records
from forewarn.pipelines.storage.remote_path import Location
from forewarn.pipelines.storage.replaced_files import read_until_still
from forewarn.pipelines.storage.stored_fleet import StoredFleet

__all__ = ["RecordStore"]

Look = Callable[[Timeline], Instances]
_Files = tuple[list[ParquetSource], list[ParquetSource], RecordsQuery]
_ROWS_OF_LIST = 1 << 21  # in a slice: a list is to fit beside what else its machine does
_MOST_OPEN = 256  # files; a process may mostly have 1,024


@dataclass(frozen=True, slots=True)
class RecordStore:
    """A `RECORDS` folder (docs/formats.md, section 1).

    Attributes
    ----------
    folder : Path or RemotePath
    kinds : FeatureKinds
        Columns to read as features.
    interval : Nanoseconds
        Between two records of a GPU.
    groups : tuple of str
        Text columns to read beside the features; a file need not have them.
    """

    folder: Location
    kinds: FeatureKinds
    interval: Nanoseconds
    groups: tuple[str, ...] = ()

    def files(self) -> list[tuple[dt.date, Location]]:
        """Return date and path of every file, in the order of their names.

        Raises
        ------
        RecordsError
            If the folder is not there, holds no partition, or one that is no date.
        """
        return list_records(self.folder)

    def columns(self) -> set[str]:
        """Return the columns that every file has."""
        return read_until_still(self._columns)

    def _columns(self) -> set[str]:
        return set.intersection(*(set(ParquetSource(p).column_names) for _, p in self.files()))

    def has_failures(self) -> bool:
        """Tell whether anything says which GPUs failed."""
        tables = (self.folder / FAILURES_TABLE, self.folder / INCIDENT_FAILURES)
        return any(path.exists() for path in tables) or FAILURE in self.columns()

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        spacings: Spacings | None = None,
    ) -> Records:
        """Read the records of [start, end).

        Parameters
        ----------
        start, end : int, optional
            Nanoseconds since 1970 UTC.
        spacings : Spacings, optional
            Of several reads that are judged together.

        Raises
        ------
        RecordsError
            If a file cannot be read or breaks the contract, or no record is left.
        """

        def read() -> Records:
            sources, _, query = self._sources(start, end, with_older=False)
            self._check_memory(sources)
            return assemble(sources, query, spacings)

        return self.served(read_until_still(read))

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
        files = partial(self._sources, start, end, with_older=True)
        return read_until_still(lambda: self._read_known(files(), end))

    def _read_known(self, files: _Files, end: int | None) -> tuple[Records, Failures]:
        sources, older, query = files
        self._check_memory(sources)
        past, records = read_past(older, query.start), assemble(sources, query)
        failures = Failures.of_records(records, past.of_gpus(records.serials))
        return self._known(records, failures, end=end)

    def _known(
        self, records: Records, failures: Failures, *, end: int | None
    ) -> tuple[Records, Failures]:
        """Add to records and their failures what else was known of them at `end`."""
        failures = failures.joined(self.reported(records.serials))
        return self.served(records), failures if end is None else failures.known_before(end)

    def read_fleet(
        self,
        start: int | None,
        end: int,
        look: Look,
        n_slices: int | None = None,
    ) -> StoredFleet:
        """Read what anybody could know at `end`, slice by slice of GPUs (`read_known`).

        Of compacted records a slice is read without the rest, so that memory does not grow with
        the fleet.

        Parameters
        ----------
        start : int, optional
            Nanoseconds since 1970 UTC.
        end : int
        look : callable
            Finds instances in a timeline, while the keys are read.
        n_slices : int, optional
            1 to 64; by default as many as pay.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def read() -> StoredFleet:
            files = self._sources(start, end, with_older=True)
            number = n_slices or number_of_slices(files[0])
            return self._sliced(files, end, look, number)

        return read_until_still(read)

    def read_recent(
        self, start: int, end: int, look: Look, *, sliced: bool = True
    ) -> StoredFleet | Timeline:
        """Read as `read_fleet`; as a whole where slices do not pay, or are not asked for."""

        def read() -> StoredFleet | Timeline:
            files = self._sources(start, end, with_older=True)
            n_slices = number_of_slices(files[0], _ROWS_OF_LIST) if sliced else 1
            if n_slices > 1:
                return self._sliced(files, end, look, n_slices)
            return lay_out(*self._read_known(files, end))

        return read_until_still(read)

    def read_span(
        self,
        span: tuple[int, int],
        failures: Callable[[Sequence[str]], Failures],
        look: Look,
        *,
        margin: Nanoseconds,
        n_slices: int | None = None,
    ) -> StoredFleet:
        """Read the records of [start, end) slice by slice, where who fails is known already.

        Parameters
        ----------
        span : tuple of (int, int)
            Nanoseconds since 1970 UTC.
        failures : callable
            Returns the failures of some serials.
        look : callable
            As of `read_fleet`.
        margin : Nanoseconds
            How much earlier reading begins, so that the first records look as in the whole.
        n_slices : int, optional
            As of `read_fleet`.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def known(records: Records, _: Failures) -> tuple[Records, Failures]:
            return self.served(records), failures(records.serials)

        def read() -> StoredFleet:
            sources, _, query = self._sources(span[0] - margin, span[1], with_older=False)
            number = n_slices or number_of_slices(sources)
            return StoredFleet.of(sources, query, (), known, look, number, span[0])

        return read_until_still(read)

    def _sliced(self, files: _Files, end: int, look: Look, n_slices: int) -> StoredFleet:
        sources, older, query = files
        self._check_memory(sources, n_slices)
        known = partial(self._known, end=end)
        return StoredFleet.of(sources, query, older, known, look, n_slices)

    def _check_memory(self, sources: Sequence[ParquetSource], n_slices: int = 1) -> None:
        n_rows = sum(source.n_rows for source in sources) // n_slices
        check_memory(self.folder, n_rows, len(self.kinds.names))

    def _sources(self, start: int | None, end: int | None, *, with_older: bool) -> _Files:
        """Return the files that can hold records of [start, end), those before, and the query."""
        files = self.files()
        chosen = [path for _, path in self._chosen(files, start, end)]
        late = len(chosen) - _MOST_OPEN  # the newest are those that a collector writes anew
        sources = [ParquetSource(path, stays_open=i >= late) for i, path in enumerate(chosen)]
        last = dt.date.min if start is None or not with_older else date_of(start)
        older = [ParquetSource(path) for date, path in files if date <= last]
        in_threads(lambda source: source.n_rows, sources)  # reads the heads
        check_labels(sources)
        query = RecordsQuery(str(self.folder), self.kinds, self.interval, self.groups, start, end)
        return sources, older, query

    def _chosen(
        self, listed: Sequence[tuple[dt.date, Location]], start: int | None, end: int | None
    ) -> list[tuple[dt.date, Location]]:
        """Return the files whose date can hold records of [start, end)."""
        low = dt.date.min if start is None else date_of(start)
        high = dt.date.max if end is None else date_of(end - 1)
        files = [(date, path) for date, path in listed if low <= date <= high]
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

    def served(self, records: Records) -> Records:
        """Return the records with the spans in which their GPUs were out of service."""
        path = self.folder / OUT_OF_SERVICE
        absences = read_absences(path)
        if not absences:
            return records
        return replace(records, out_of_service=of_records(absences, records, path))
