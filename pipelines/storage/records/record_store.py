"""The store of records: Parquet files in one folder a date."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from forewarn.features.records.assembly import RecordsQuery, assemble, read_past_states
from forewarn.features.records.failures import Failures
from forewarn.features.records.file_check import States
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
_MAX_OPEN_FILES = 256  # files; a process may mostly have 1,024


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
        Text columns to read beside the features; a file need not have them.
    held_files : tuple of (date, ParquetSource), optional
        The files to read, whatever the folder holds by now (`held`).
    """

    folder: Location
    kinds: FeatureKinds
    interval: Nanoseconds
    groups: tuple[str, ...] = ()
    held_files: tuple[tuple[dt.date, ParquetSource], ...] = ()

    def files(self) -> list[tuple[dt.date, Location]]:
        """Return date and path of every file, in the order of their names.

        Raises
        ------
        RecordsError
            If the folder is not there, holds no partition, or one that is no date.
        """
        held = [(date, source.path) for date, source in self.held_files]
        return held or list_records(self.folder)

    def columns(self) -> set[str]:
        """Return the columns that every file has."""
        return read_consistent(self._columns)

    def _columns(self) -> set[str]:
        return set.intersection(*(set(source.column_names) for _, source in self._listed()))

    def _listed(self) -> Sequence[tuple[dt.date, ParquetSource]]:
        files = self.held_files
        return files or [(date, ParquetSource(path)) for date, path in self.files()]

    def held(self, start: int | None, end: int) -> RecordStore:
        """Return the store as its files are now, to be read several times.

        They stay open: what lands, is replaced or compacted meanwhile is not seen. Of more files
        than a process may open, and of those of an object store, one that is replaced is refused
        by the next reading.

        Parameters
        ----------
        start, end : int
            What will be read of them; `start` may be None.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def hold() -> RecordStore:
            listed = self._listed()
            chosen = [source for _, source in self._chosen(listed, start, end)]
            map_threads(ParquetSource.hold, _newest(chosen))
            return replace(self, held_files=tuple(listed))

        return read_consistent(hold)

    def rows_by_date(self, start: int | None = None, end: int | None = None) -> dict[dt.date, int]:
        """Return how many rows the files of each date claim that can hold records of [start, end).

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
        """Tell whether anything says which GPUs failed."""
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
            return assemble(_parts(sources, query), query, spacings)

        return self.served(read_consistent(read))

    def read_part(self, start: int, end: int, most_rows: int) -> Records:
        """Read the records of [start, end), of fewer GPUs where they are more than so many rows.

        The hash of the serial chooses them.

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
                except NoRecordsError:  # few GPUs: some slices have none
                    if last == MAX_SLICES:
                        raise
                    last = min(MAX_SLICES, 2 * last)

        return self.served(read_consistent(read))

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
        return read_consistent(lambda: self._read_known(files(), end))

    def _read_known(self, files: _Files, end: int | None) -> tuple[Records, Failures]:
        sources, older, query = files
        self._check_memory(sources)
        with ThreadPoolExecutor(1) as beside:
            past = beside.submit(read_past_states, older, query.start).result
            records = assemble(_parts(sources, query), query)
        failures = Failures.from_records(records, past().for_gpus(records.serials))
        return self._known(records, failures, end=end)

    def failures_known(
        self, start: int | None, end: int | None
    ) -> Callable[[Sequence[str], States], Failures]:
        """Read what older records say; return what makes failures of the states in [start, end).

        Returns
        -------
        callable
            Takes serials and the states of their records, and returns what `read_known` does.

        Raises
        ------
        RecordsError
            As `read`.
        """
        past = read_consistent(lambda: read_past_states(_before(self._listed(), start), start))

        def failures(serials: Sequence[str], states: States) -> Failures:
            older = past.for_gpus(serials)
            rows = states if older is None else States.joined([older, states])
            return self._reported_too(Failures.from_rows(*rows), serials, end)

        return failures

    def _reported_too(
        self, failures: Failures, serials: Sequence[str], end: int | None
    ) -> Failures:
        """Add the failures of tables to those of records; of all, what was known at `end`."""
        failures = failures.joined(self.reported(serials))
        return failures if end is None else failures.known_before(end)

    def _known(
        self, records: Records, failures: Failures, *, end: int | None
    ) -> tuple[Records, Failures]:
        """Add to records and their failures what else was known of them at `end`."""
        return self.served(records), self._reported_too(failures, records.serials, end)

    def read_fleet(
        self,
        start: int | None,
        end: int,
        look: Callable[[Timeline], _Selection],
        n_slices: int | None = None,
    ) -> StoredFleet[_Selection]:
        """Read what anybody could know at `end`, slice by slice of GPUs (`read_known`).

        Of compacted records a slice is read without the rest, so that memory does not grow with
        the fleet.

        Parameters
        ----------
        start : int, optional
            Nanoseconds since 1970 UTC.
        end : int
        look : callable
            Finds instances, or candidates, in a timeline, while the keys are read.
        n_slices : int, optional
            1 to 64; by default as many as pay.

        Raises
        ------
        RecordsError
            As `read`.
        """

        def read() -> StoredFleet[_Selection]:
            files = self._sources(start, end, with_older=True)
            number = n_slices or number_of_slices(files[0])
            return self._sliced(files, end, look, number)

        return read_consistent(read)

    def read_recent(
        self, start: int, end: int, look: Callable[[Timeline], _Selection], *, sliced: bool = True
    ) -> StoredFleet[_Selection] | Timeline:
        """Read as `read_fleet`; as a whole where slices do not pay, or are not asked for."""

        def read() -> StoredFleet[_Selection] | Timeline:
            files = self._sources(start, end, with_older=True)
            n_slices = number_of_slices(files[0]) if sliced else 1
            if n_slices > 1:
                return self._sliced(files, end, look, n_slices)
            return build_timeline(*self._read_known(files, end))

        return read_consistent(read)

    def read_span(
        self,
        span: tuple[int, int],
        failures: Callable[[Sequence[str]], Failures],
        look: Callable[[Timeline], _Selection],
        *,
        margin: Nanoseconds,
        n_slices: int | None = None,
    ) -> StoredFleet[_Selection]:
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

        def read() -> StoredFleet[_Selection]:
            sources, _, query = self._sources(span[0] - margin, span[1], with_older=False)
            number = n_slices or number_of_slices(sources)
            return StoredFleet.open(sources, query, (), known, look, number, span[0], (MACHINE,))

        return read_consistent(read)

    def _sliced(
        self, files: _Files, end: int, look: Callable[[Timeline], _Selection], n_slices: int
    ) -> StoredFleet[_Selection]:
        sources, older, query = files
        self._check_memory(sources, n_slices)
        known = partial(self._known, end=end)
        texts = (MACHINE,) if read_out_of_service(self.folder / OUT_OF_SERVICE) else ()
        return StoredFleet.open(sources, query, older, known, look, n_slices, texts=texts)

    def _check_memory(self, sources: Sequence[ParquetSource], n_slices: int = 1) -> None:
        n_rows = sum(source.n_rows for source in sources) // n_slices
        check_memory(self.folder, n_rows, len(self.kinds.names))

    def _sources(self, start: int | None, end: int | None, *, with_older: bool) -> _Files:
        """Return the files that can hold records of [start, end), those before, and the query."""
        listed = self._listed()
        sources = [source for _, source in self._chosen(listed, start, end)]
        for source in _newest(sources):
            source.stays_open = True
        older = _before(listed, start) if with_older else []
        map_threads(lambda source: source.n_rows, sources)  # reads the heads
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
        """Return the failures of these serials that the tables beside the records have."""
        failures = Failures.empty()
        for path in (self.folder / FAILURES_TABLE, self.folder / INCIDENT_FAILURES):
            if path.exists():
                failures = failures.joined(read_failures_table(path, serials))
        return failures

    def causes(self, before: int) -> dict[str, list[tuple[int, str]]]:
        """Return moment and cause of the failures of each serial that were known at a moment."""
        causes: dict[str, list[tuple[int, str]]] = {}
        for path in (self.folder / FAILURES_TABLE, self.folder / INCIDENT_FAILURES):
            for serial, rows in read_causes(path, before).items():
                causes.setdefault(serial, []).extend(rows)
        return causes

    def served(self, records: Records) -> Records:
        """Return the records with the spans in which their GPUs were out of service."""
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
    """Return what of the files can hold what is asked for."""
    return [FileSlice.for_slices(source, query.slices, query.span) for source in sources]


def _newest(sources: Sequence[ParquetSource]) -> Sequence[ParquetSource]:
    """Return as many as may stay open; the newest are those that a collector writes anew."""
    return sources[max(0, len(sources) - _MAX_OPEN_FILES) :]
