"""The store of records: Parquet files in one folder per date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from forewarn.features.records.assembly import RecordsQuery, assemble, read_past_states
from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.failures import Failures
from forewarn.features.records.file_check import SPARSE_COLUMNS, States
from forewarn.features.records.fleet_slices import MAX_SLICES
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import (
    FAILURE,
    MACHINE,
    FeatureKinds,
    NoRecordsError,
    Records,
    RecordsError,
)
from forewarn.features.records.row_cleaning import SpacingCheck
from forewarn.features.threads import map_threads
from forewarn.features.time_units import Nanoseconds, date_of
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.consistent_read import read_consistent
from forewarn.pipelines.storage.records.failures_table import (
    FAILURES_TABLE,
    INCIDENT_FAILURES,
    read_causes,
    read_failures_table,
)
from forewarn.pipelines.storage.records.file_slice import FileSlice, number_of_slices
from forewarn.pipelines.storage.records.labelled_files import check_labels
from forewarn.pipelines.storage.records.mapped_columns import check_names
from forewarn.pipelines.storage.records.out_of_service_table import (
    OUT_OF_SERVICE,
    for_records,
    read_out_of_service,
)
from forewarn.pipelines.storage.records.parquet_files import ParquetSource, check_memory
from forewarn.pipelines.storage.records.record_listing import list_records
from forewarn.pipelines.storage.records.stored_fleet import Selection, StoredFleet

__all__ = ["RecordStore"]

_Selection = TypeVar("_Selection", bound=Selection)
_Files = tuple[list[ParquetSource], list[ParquetSource], RecordsQuery]
_MAX_OPEN_FILES = 256  # the usual limit of a process is 1,024


@dataclass(frozen=True, slots=True)
class RecordStore:
    """A `RECORDS` folder (formats.md, section 1).

    Attributes
    ----------
    folder : Path or RemotePath
    kinds : FeatureKinds
        Columns to read as features.
    interval : Nanoseconds
        Between two records of a GPU.
    groups : tuple of str
        Optional text columns to read in addition to the features.
    names : ColumnNames
        Names of the columns in the data.
    pinned_files : tuple of (date, ParquetSource), optional
        The files to read, regardless of changes to the folder (`pinned`).
    """

    folder: Location
    kinds: FeatureKinds
    interval: Nanoseconds
    groups: tuple[str, ...] = ()
    names: ColumnNames = OUR_NAMES
    pinned_files: tuple[tuple[dt.date, ParquetSource], ...] = ()

    def files(self) -> list[tuple[dt.date, Location]]:
        """Return date and path of each file, sorted by name.

        Raises
        ------
        RecordsError
            If the folder does not exist, has no partition, or one without a valid date.
        """
        held = [(date, source.path) for date, source in self.pinned_files]
        return held or list_records(self.folder)

    def columns(self) -> set[str]:
        """Return the columns that all files have, and those of SPARSE_COLUMNS that any has."""
        return read_consistent(self._columns)

    def _columns(self) -> set[str]:
        files = [set(source.column_names) for _, source in self._listed()]
        return set.intersection(*files) | (set.union(*files) & {*SPARSE_COLUMNS})

    def _listed(self) -> Sequence[tuple[dt.date, ParquetSource]]:
        files = self.pinned_files
        return files or [(date, ParquetSource(path, self.names)) for date, path in self.files()]

    def pinned(self, start: int | None, end: int) -> RecordStore:
        """Return the store with its current files, for repeated reads of the same data.

        The files stay open, so that later landings, replacements and compactions have no effect. If
        there are more files than a process may open, or they are in an object store, reading a
        replaced file raises an error.

        Parameters
        ----------
        start, end : int
            The span that will be read; `start` may be None.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def hold() -> RecordStore:
            listed = self._listed()
            chosen = [source for _, source in self._chosen(listed, start, end)]
            map_threads(ParquetSource.hold, _newest(chosen))
            return replace(self, pinned_files=tuple(listed))

        return read_consistent(hold)

    def rows_by_date(self, start: int | None = None, end: int | None = None) -> dict[dt.date, int]:
        """Return the number of rows, by date, of the files that can hold records of [start, end).

        Raises
        ------
        RecordsError
            As `read`.
        """

        def count() -> dict[dt.date, int]:
            rows: dict[dt.date, int] = {}
            for date, source in self._chosen(self._listed(), start, end):
                rows[date] = rows.get(date, 0) + source.n_rows
            return rows

        return read_consistent(count)

    def has_failures(self) -> bool:
        """Tell whether the records or the tables next to them show failures."""
        tables = (self.folder / FAILURES_TABLE, self.folder / INCIDENT_FAILURES)
        return any(path.exists() for path in tables) or FAILURE in self.columns()

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        spacings: SpacingCheck | None = None,
    ) -> Records:
        """Read the records of [start, end).

        Parameters
        ----------
        start, end : int, optional
            Nanoseconds since 1970 UTC.
        spacings : SpacingCheck, optional
            Shared by several reads.

        Raises
        ------
        RecordsError
            If a file cannot be read or violates the format, or no record is left.
        """

        def read() -> Records:
            sources, _, query = self._sources(start, end, with_older=False)
            self._check_memory(sources)
            return assemble(_parts(sources, query), query, spacings)

        return self.with_out_of_service(read_consistent(read))

    def read_part(self, start: int, end: int, most_rows: int) -> Records:
        """Read the records of [start, end), of fewer GPUs if there are more than `most_rows` rows.

        GPUs are chosen by the hash of their serial.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def read() -> Records:
            sources, _, query = self._sources(start, end, with_older=False)
            n_rows = sum(source.n_rows for source in sources)
            last = min(MAX_SLICES, max(1, MAX_SLICES * most_rows // max(n_rows, 1)))
            while True:
                part = replace(query, slices=(0, last))
                try:
                    return assemble(_parts(sources, part), part)
                except NoRecordsError:  # a slice of few GPUs may be empty
                    if last == MAX_SLICES:
                        raise
                    last = min(MAX_SLICES, 2 * last)

        return self.with_out_of_service(read_consistent(read))

    def read_known(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        serials: Set[str] | None = None,
    ) -> tuple[Records, Failures]:
        """Read what was known at `end`: the records of [start, end), and all failures.

        Parameters
        ----------
        start, end : int, optional
            Nanoseconds since 1970 UTC.
        serials : set of str, optional
            Only these GPUs.

        Returns
        -------
        Records
        Failures
            Of the GPUs of the records, from all records before `end` and from the tables of
            failures. Without `end` nothing is excluded.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def read() -> tuple[Records, Failures]:
            sources, older, query = self._sources(start, end, with_older=True)
            return self._read_known((sources, older, replace(query, serials=serials)), end)

        return read_consistent(read)

    def _read_known(self, files: _Files, end: int | None) -> tuple[Records, Failures]:
        sources, older, query = files
        self._check_memory(sources)
        with ThreadPoolExecutor(1) as pool:
            past = pool.submit(read_past_states, older, query.start).result
            records = assemble(_parts(sources, query), query)
        failures = Failures.from_records(records, past().for_gpus(records.serials))
        return self._known(records, failures, end=end)

    def failures_known(
        self, start: int | None, end: int | None
    ) -> Callable[[Sequence[str], States], Failures]:
        """Read older records; return a function from states in [start, end) to failures.

        Returns
        -------
        callable
            Takes serials and the states of their records, and returns the failures of `read_known`.

        Raises
        ------
        RecordsError
            As `read`.
        """
        past = read_consistent(lambda: read_past_states(_before(self._listed(), start), start))

        def failures(serials: Sequence[str], states: States) -> Failures:
            older = past.for_gpus(serials)
            rows = states if older is None else States.joined([older, states])
            return self._with_reported(Failures.from_rows(*rows), serials, end)

        return failures

    def _with_reported(
        self, failures: Failures, serials: Sequence[str], end: int | None
    ) -> Failures:
        """Add the failures of tables to those of records, as known at `end`."""
        failures = failures.joined(self.reported(serials))
        return failures if end is None else failures.known_before(end)

    def _known(
        self, records: Records, failures: Failures, *, end: int | None
    ) -> tuple[Records, Failures]:
        """Add failures of tables and spans out of service, as known at `end`."""
        return self.with_out_of_service(records), self._with_reported(
            failures, records.serials, end
        )

    def read_fleet(
        self,
        start: int | None,
        end: int,
        select: Callable[[Timeline], _Selection],
        n_slices: int | None = None,
    ) -> StoredFleet[_Selection]:
        """Read what was known at `end`, slice by slice of GPUs (`read_known`).

        Of compacted records each slice is read separately, so that memory does not grow with the
        fleet.

        Parameters
        ----------
        start : int, optional
            Nanoseconds since 1970 UTC.
        end : int
        select : callable
            Selects instances or candidates from a timeline while the keys are read.
        n_slices : int, optional
            1 to 64; by default `number_of_slices`.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def read() -> StoredFleet[_Selection]:
            files = self._sources(start, end, with_older=True)
            number = n_slices or number_of_slices(files[0])
            return self._sliced(files, end, select, number)

        return read_consistent(read)

    def read_recent(
        self, start: int, end: int, select: Callable[[Timeline], _Selection], *, sliced: bool = True
    ) -> StoredFleet[_Selection] | Timeline:
        """Read as `read_fleet`, in one slice unless slices are requested and save memory."""

        def read() -> StoredFleet[_Selection] | Timeline:
            files = self._sources(start, end, with_older=True)
            n_slices = number_of_slices(files[0]) if sliced else 1
            if n_slices > 1:
                return self._sliced(files, end, select, n_slices)
            return build_timeline(*self._read_known(files, end))

        return read_consistent(read)

    def read_span(
        self,
        span: tuple[int, int],
        failures: Callable[[Sequence[str]], Failures],
        select: Callable[[Timeline], _Selection],
        *,
        margin: Nanoseconds,
        n_slices: int | None = None,
    ) -> StoredFleet[_Selection]:
        """Read the records of [start, end) slice by slice, with given failures.

        Parameters
        ----------
        span : tuple of (int, int)
            Nanoseconds since 1970 UTC.
        failures : callable
            Returns the failures of some serials.
        select : callable
            As for `read_fleet`.
        margin : Nanoseconds
            How much earlier reading starts, so that the first records are cleaned as in a full
            read.
        n_slices : int, optional
            As for `read_fleet`.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def known(records: Records, _: Failures) -> tuple[Records, Failures]:
            return self.with_out_of_service(records), failures(records.serials)

        def read() -> StoredFleet[_Selection]:
            sources, _, query = self._sources(span[0] - margin, span[1], with_older=False)
            number = n_slices or number_of_slices(sources)
            return StoredFleet.open(sources, query, (), known, select, number, span[0], (MACHINE,))

        return read_consistent(read)

    def _sliced(
        self, files: _Files, end: int, select: Callable[[Timeline], _Selection], n_slices: int
    ) -> StoredFleet[_Selection]:
        sources, older, query = files
        self._check_memory(sources, n_slices)
        known = partial(self._known, end=end)
        texts = (MACHINE,) if read_out_of_service(self.folder / OUT_OF_SERVICE) else ()
        return StoredFleet.open(sources, query, older, known, select, n_slices, texts=texts)

    def _check_memory(self, sources: Sequence[ParquetSource], n_slices: int = 1) -> None:
        n_rows = sum(source.n_rows for source in sources) // n_slices
        check_memory(self.folder, n_rows, len(self.kinds.names))

    def _sources(self, start: int | None, end: int | None, *, with_older: bool) -> _Files:
        """Return the files for [start, end), those before, and the query."""
        listed = self._listed()
        sources = [source for _, source in self._chosen(listed, start, end)]
        for source in _newest(sources):
            source.stays_open = True
        older = _before(listed, start) if with_older else []
        map_threads(lambda source: source.n_rows, sources)  # reads the metadata of all files
        check_names(sources)
        check_labels(sources)
        query = RecordsQuery(str(self.folder), self.kinds, self.interval, self.groups, start, end)
        return sources, older, query

    def _chosen(
        self, listed: Sequence[tuple[dt.date, ParquetSource]], start: int | None, end: int | None
    ) -> list[tuple[dt.date, ParquetSource]]:
        """Return the files whose date can hold records of [start, end)."""
        low = dt.date.min if start is None else date_of(start)
        high = dt.date.max if end is None else date_of(end - 1)
        files = [(date, source) for date, source in listed if low <= date <= high]
        if not files:
            raise RecordsError(f"{self.folder}: no records from {low} to {high}.")
        return files

    def reported(self, serials: Sequence[str]) -> Failures:
        """Return the failures of the serials in the tables next to the records."""
        failures = Failures.empty()
        for path in (self.folder / FAILURES_TABLE, self.folder / INCIDENT_FAILURES):
            if path.exists():
                failures = failures.joined(read_failures_table(path, serials, self.names))
        return failures

    def causes(self, before: int) -> dict[str, list[tuple[int, str]]]:
        """Return time and cause of the failures of each serial that were known at a moment."""
        causes: dict[str, list[tuple[int, str]]] = {}
        for path in (self.folder / FAILURES_TABLE, self.folder / INCIDENT_FAILURES):
            for serial, rows in read_causes(path, before, self.names).items():
                causes.setdefault(serial, []).extend(rows)
        return causes

    def with_out_of_service(self, records: Records) -> Records:
        """Add the spans in which the GPUs were out of service."""
        path = self.folder / OUT_OF_SERVICE
        absences = read_out_of_service(path)
        if not absences:
            return records
        return replace(records, out_of_service=for_records(absences, records, path))


def _before(
    listed: Sequence[tuple[dt.date, ParquetSource]], start: int | None
) -> list[ParquetSource]:
    """Return the files whose date can hold records before `start`."""
    last = dt.date.min if start is None else date_of(start)
    return [source for date, source in listed if date <= last]


def _parts(sources: Sequence[ParquetSource], query: RecordsQuery) -> list[FileSlice]:
    """Return the parts of the files that the query needs."""
    return [FileSlice.for_slices(source, query.slices, query.span) for source in sources]


def _newest(sources: Sequence[ParquetSource]) -> Sequence[ParquetSource]:
    """Return the files to keep open: the newest ones, which a collector rewrites."""
    return sources[max(0, len(sources) - _MAX_OPEN_FILES) :]
