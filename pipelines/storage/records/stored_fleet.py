"""A fleet on disk as of a moment, read repeatedly slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from forewarn.features.records.assembly import (
    RecordKeys,
    RecordsQuery,
    check_numbers,
    read_past_states,
    texts_by_column,
)
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.fleet_slices import slice_ranges
from forewarn.features.records.fleet_timeline import Fleet, FleetSlice, Timeline, build_timeline
from forewarn.features.records.hourly_sums import HourRange
from forewarn.features.records.lazy_columns import FileRows
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.records.record_table import FeatureKinds, NoRecordsError, Records
from forewarn.features.records.row_cleaning import SpacingCheck
from forewarn.features.threads import imap_threads, map_threads, prefetch
from forewarn.pipelines.storage.records.file_slice import FileSlice
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.records.scratch_arrays import ScratchArrays

__all__ = ["Selection", "StoredFleet"]

Known = Callable[[Records, Failures], tuple[Records, Failures]]


class Selection(Protocol):
    """A selection made while keys are read, by slice and then for the fleet."""

    def renumbered(self, gpu: npt.NDArray[np.int64]) -> Self:
        """Return the selection of a slice with its GPUs numbered as in the fleet."""
        ...

    @classmethod
    def joined(cls, slices: Sequence[Self]) -> Self:
        """Merge the selections of all slices, sorted by GPU of the fleet and time."""
        ...


_Selection = TypeVar("_Selection", bound=Selection)
_MAX_SLICES_IN_MEMORY = (
    2  # slices whose keys are in memory; one thread does much of the work on a slice
)
_LARGE_SLICE_ROWS = 1 << 23  # larger slices are read one at a time


class _Slice(NamedTuple):
    """What is stored of a slice between reads; keys are on disk if there are several slices.

    Attributes
    ----------
    keys : callable
        Returns the keys.
    serials : tuple of str
        Of its GPUs, sorted.
    failures, episodes : Failures
        As known, and merged as in a timeline.
    out_of_service : OutOfService
    hours : HourRange
    first : int
        Time of the first record.
    """

    keys: Callable[[], RecordKeys]
    serials: tuple[str, ...]
    failures: Failures
    episodes: Failures
    out_of_service: OutOfService
    hours: HourRange
    first: int

    @classmethod
    def from_timeline(
        cls, keys: Callable[[], RecordKeys], failures: Failures, timeline: Timeline
    ) -> _Slice:
        """Return what is stored of a timeline and the known failures."""
        records = timeline.records
        return cls(
            keys,
            records.serials,
            failures,
            timeline.failures,
            records.out_of_service,
            HourRange.covering(records.time, timeline.counted, records.interval),
            records.first,
        )


@dataclass(frozen=True)
class StoredFleet(Generic[_Selection]):
    """A `Fleet` whose slices are read on demand.

    Attributes
    ----------
    sources : sequence of ParquetSource
    query : RecordsQuery
        Of the whole fleet.
    serials : tuple of str
    failures : Failures
    hours : HourRange
    first : int
        Time of the first record.
    selection : Selection
        What `select` selected while the keys were read, such as `Instances`.
    since : int or None
        Earlier records are read, so that later ones are cleaned as in a full read, and then
        dropped.
    """

    sources: Sequence[ParquetSource]
    query: RecordsQuery
    serials: tuple[str, ...]
    failures: Failures
    hours: HourRange
    first: int
    selection: _Selection
    _slices: tuple[_Slice, ...]
    _numbers: tuple[npt.NDArray[np.int64], ...]
    _texts: dict[str, tuple[str, ...]]
    since: int | None = None

    @classmethod
    def open(
        cls,
        sources: Sequence[ParquetSource],
        query: RecordsQuery,
        older: Sequence[ParquetSource],
        known: Known,
        select: Callable[[Timeline], _Selection],
        n_slices: int,
        since: int | None = None,
        texts: tuple[str, ...] = (),
    ) -> StoredFleet[_Selection]:
        """Read the keys and the texts of all slices.

        Parameters
        ----------
        sources, query
            As for `assemble`.
        older : sequence of ParquetSource
            Files with earlier rows, as for `read_past_states`.
        known : callable
            Adds what else was known to records and their failures.
        select : callable
            Selects for example instances from the timeline of a slice.
        n_slices : int
            1 to 64; slices without a record are skipped.
        since : int, optional
            See the attribute.
        texts : tuple of str
            The text columns that `known` and `select` need.

        Raises
        ------
        RecordsError
            If a file violates the format, or no record is left.
        """
        spacings, scratch = SpacingCheck(), ScratchArrays() if n_slices > 1 else None

        def read(slices: tuple[int, int]) -> tuple[_Slice, _Selection] | NoRecordsError:
            part_query = replace(query, kinds=FeatureKinds(), texts=texts, slices=slices)
            try:
                own = RecordKeys.read(_files(sources, part_query), part_query, spacings)
                records = own.records(part_query)
                failures = Failures.from_records(records, past().for_gpus(records.serials))
                records, failures = known(_starting_at(records, since), failures)
                timeline = build_timeline(records, failures)
                part = _Slice.from_timeline(_on_disk(own, scratch), failures, timeline)
                return part, select(timeline)
            except NoRecordsError as error:
                return error

        with ThreadPoolExecutor(1) as pool:
            past = pool.submit(read_past_states, older, query.start).result
            ranges, threads = slice_ranges(n_slices), _slices_at_once(sources, n_slices)
            results = list(imap_threads(read, ranges, threads))
        with_records = [each for each in results if not isinstance(each, NoRecordsError)]
        if not with_records and isinstance(results[0], NoRecordsError):
            raise results[0]
        parts, selections = [part for part, _ in with_records], [some for _, some in with_records]
        spacings.check(query.name)
        map_threads(partial(check_numbers, query), sources)
        serials = tuple(sorted(serial for part in parts for serial in part.serials))
        numbers = _numbers(parts, serials)
        return cls(
            sources,
            query,
            serials,
            failures=_failures_of(parts, numbers),
            hours=HourRange.joined(part.hours for part in parts),
            first=min(part.first for part in parts),
            selection=_joined(selections, numbers),
            _slices=tuple(parts),
            _numbers=tuple(numbers),
            _texts=texts_by_column(_files(sources, query), query),
            since=since,
        )

    @property
    def n_slices(self) -> int:
        """Number of slices that have records."""
        return len(self._slices)

    def slices(self) -> Iterator[FleetSlice]:
        """Yield slice after slice without caching; columns of numbers are read on demand.

        Raises
        ------
        RecordsError
            If a file that is not kept open was replaced.
        """
        return prefetch(map(self._slice, self._slices, self._numbers))

    def some_gpus(self, gpu: Collection[int], columns: Collection[str]) -> Fleet:
        """Return the slices of some GPUs with some of the columns of numbers and no texts."""
        query = replace(self.query, kinds=self.query.kinds.among(columns), texts=())
        pairs = zip(self._slices, self._numbers, strict=True)
        chosen = [(part, own) for part, own in pairs if np.isin(own, list(gpu)).any()]
        parts, numbers = (tuple(each) for each in zip(*chosen, strict=True))
        return replace(self, query=query, _slices=parts, _numbers=numbers, _texts={})

    def _slice(self, part: _Slice, numbers: npt.NDArray[np.int64]) -> FleetSlice:
        records = part.keys().records(self.query, once=True)
        texts = {name: c.renumbered(self._texts[name]) for name, c in records.texts.items()}
        records = replace(records, texts=texts, out_of_service=part.out_of_service)
        timeline = build_timeline(_starting_at(records, self.since), part.failures)
        return FleetSlice(replace(timeline, hours=self.hours), numbers)


def _on_disk(keys: RecordKeys, scratch: ScratchArrays | None) -> Callable[[], RecordKeys]:
    """Store keys on disk or in memory; return a function that reads them."""
    if scratch is None:
        return lambda: keys
    clean, sources = keys.clean, [file.source for file in keys.files]
    columns = scratch.keep([clean.gpu, clean.time, clean.failed, clean.filled, clean.row])
    rows = [None if file.rows is None else scratch.keep([file.rows]) for file in keys.files]
    clean, keys = clean.without_rows(), keys._replace(files=[], clean=clean.without_rows())

    def again() -> RecordKeys:
        gpu, time, failed, filled, row = columns()
        in_order = clean._replace(gpu=gpu, time=time, failed=failed, filled=filled, row=row)
        each = (None if read is None else read()[0] for read in rows)
        return keys._replace(files=list(map(FileRows, sources, each)), clean=in_order)

    return again


def _slices_at_once(sources: Sequence[ParquetSource], n_slices: int) -> int:
    """Return the number of slices whose keys may be in memory; 1 for large slices."""
    n_rows = sum(source.n_rows for source in sources) // n_slices
    return 1 if n_rows > _LARGE_SLICE_ROWS else _MAX_SLICES_IN_MEMORY


def _files(sources: Sequence[ParquetSource], query: RecordsQuery) -> list[FileSlice]:
    return [FileSlice.for_slices(source, query.slices, query.span) for source in sources]


def _starting_at(records: Records, since: int | None) -> Records:
    """Drop the records before a moment; reject a slice that has no others."""
    begun = records if since is None else records.between(since, NEVER)
    if not len(begun):
        raise NoRecordsError("there is no record.")
    return begun


def _failures_of(parts: Sequence[_Slice], numbers: Sequence[npt.NDArray[np.int64]]) -> Failures:
    """Merge the failures of all slices, sorted by GPU of the fleet and time."""
    failures = Failures.empty()
    for part, in_fleet in zip(parts, numbers, strict=True):
        gpu = in_fleet.astype(np.int32)[part.episodes.gpu]
        failures = failures.joined(replace(part.episodes, gpu=gpu))
    return failures.select(np.lexsort((failures.failed_at, failures.gpu)))


def _joined(parts: Sequence[_Selection], numbers: Sequence[npt.NDArray[np.int64]]) -> _Selection:
    pairs = zip(parts, numbers, strict=True)
    return type(parts[0]).joined([part.renumbered(in_fleet) for part, in_fleet in pairs])


def _numbers(parts: Sequence[_Slice], serials: Sequence[str]) -> list[npt.NDArray[np.int64]]:
    """Return the number in the fleet of each GPU of each slice."""
    position = {serial: number for number, serial in enumerate(serials)}
    return [
        np.array([position[serial] for serial in part.serials], dtype=np.int64) for part in parts
    ]
