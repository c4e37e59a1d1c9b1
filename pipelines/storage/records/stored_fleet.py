"""A fleet on disk as it stood at a moment: read slice by slice, as often as it is asked for."""

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
    """What is selected while keys are read: of a slice, and then of the fleet."""

    def renumbered(self, gpu: npt.NDArray[np.int64]) -> Self:
        """Return the selection of a slice with the numbers that its GPUs have in the fleet."""
        ...

    @classmethod
    def joined(cls, slices: Sequence[Self]) -> Self:
        """Return that of all slices, by GPU of the fleet and time."""
        ...


_Selection = TypeVar("_Selection", bound=Selection)
_MAX_SLICES_IN_MEMORY = (
    2  # whose keys are in memory: much of the work on a slice is done by one thread
)
_LARGE_SLICE_ROWS = 1 << 23  # rows of a slice that is read alone


class _Slice(NamedTuple):
    """What is kept of a slice between two readings; its keys on disk where there are several.

    Attributes
    ----------
    keys : callable
        Returns its keys.
    serials : tuple of str
        Of its GPUs, sorted.
    failures, episodes : Failures
        As they were known, and as a timeline has them.
    out_of_service : OutOfService
    hours : Hours
    first : int
        The first moment of which there is a record.
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
        """Return what is kept of a timeline with all that was known of failures."""
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
    """A `Fleet` whose slices are read when they are asked for.

    Attributes
    ----------
    sources : sequence of ParquetSource
    query : RecordsQuery
        Of the whole fleet.
    serials : tuple of str
    failures : Failures
    hours : Hours
    first : int
        The first moment of which there is a record.
    selection : Selection
        What `look` selected while the keys were read, such as `Instances`.
    since : int or None
        Records before it are read, so that those after it look as they do in the whole, and then
        left out.
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
        look: Callable[[Timeline], _Selection],
        n_slices: int,
        since: int | None = None,
        texts: tuple[str, ...] = (),
    ) -> StoredFleet[_Selection]:
        """Read the keys and the texts of all slices.

        Parameters
        ----------
        sources, query
            As of `assemble`.
        older : sequence of ParquetSource
            Files that hold rows before those, as of `read_past_states`.
        known : callable
            Adds to records and their failures what else was known of them.
        look : callable
            Finds what is wanted, such as instances, in the timeline of a slice.
        n_slices : int
            1 to 64; a slice without a record is left out.
        since : int, optional
            See the attribute.
        texts : tuple of str
            The text columns that `known` and `look` need.

        Raises
        ------
        RecordsError
            If a file breaks the contract, or no record is left.
        """
        keys = replace(query, kinds=FeatureKinds(), texts=texts)
        spacings, scratch = SpacingCheck(), ScratchArrays() if n_slices > 1 else None

        def read(slices: tuple[int, int]) -> tuple[_Slice, _Selection] | NoRecordsError:
            query_of_slice = replace(keys, slices=slices)
            try:
                own = RecordKeys.read(_files(sources, query_of_slice), query_of_slice, spacings)
                records = own.records(query_of_slice)
                failures = Failures.from_records(records, past().for_gpus(records.serials))
                records, failures = known(_starting_at(records, since), failures)
                timeline = build_timeline(records, failures)
                return _Slice.from_timeline(_on_disk(own, scratch), failures, timeline), look(
                    timeline
                )
            except NoRecordsError as error:
                return error

        with ThreadPoolExecutor(1) as beside:
            past = beside.submit(read_past_states, older, query.start).result
            at_once = _slices_at_once(sources, n_slices)
            read_or_empty = list(imap_threads(read, slice_ranges(n_slices), at_once))
        with_records = [each for each in read_or_empty if not isinstance(each, NoRecordsError)]
        if not with_records and isinstance(read_or_empty[0], NoRecordsError):
            raise read_or_empty[0]
        parts = [part for part, _ in with_records]
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
            selection=_joined([selection for _, selection in with_records], numbers),
            _slices=tuple(parts),
            _numbers=tuple(numbers),
            _texts=texts_by_column(_files(sources, query), query),
            since=since,
        )

    @property
    def n_slices(self) -> int:
        """How many slices have records."""
        return len(self._slices)

    def slices(self) -> Iterator[FleetSlice]:
        """Yield one slice after another; none is kept, and columns of numbers are not yet read.

        Raises
        ------
        RecordsError
            If another file has taken the name of one that was not held open.
        """
        return prefetch(map(self._slice, self._slices, self._numbers))

    def some_gpus(self, gpu: Collection[int], columns: Collection[str]) -> Fleet:
        """Return the slices of some GPUs, with some of the columns of numbers and no texts."""
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
    """Return what returns keys that are kept on disk, or in memory."""
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
    """Return of how many slices keys may be in memory: of large ones, one at a time."""
    n_rows = sum(source.n_rows for source in sources) // n_slices
    return 1 if n_rows > _LARGE_SLICE_ROWS else _MAX_SLICES_IN_MEMORY


def _files(sources: Sequence[ParquetSource], query: RecordsQuery) -> list[FileSlice]:
    return [FileSlice.for_slices(source, query.slices, query.span) for source in sources]


def _starting_at(records: Records, since: int | None) -> Records:
    """Leave out the records before a moment; refuse a slice that has none but those."""
    begun = records if since is None else records.between(since, NEVER)
    if not len(begun):
        raise NoRecordsError("there is no record.")
    return begun


def _failures_of(parts: Sequence[_Slice], numbers: Sequence[npt.NDArray[np.int64]]) -> Failures:
    """Return the failures of all slices by GPU of the fleet and time."""
    failures = Failures.empty()
    for part, in_fleet in zip(parts, numbers, strict=True):
        gpu = in_fleet.astype(np.int32)[part.episodes.gpu]
        failures = failures.joined(replace(part.episodes, gpu=gpu))
    return failures.select(np.lexsort((failures.failed_at, failures.gpu)))


def _joined(parts: Sequence[_Selection], numbers: Sequence[npt.NDArray[np.int64]]) -> _Selection:
    """Return the selection of all slices."""
    pairs = zip(parts, numbers, strict=True)
    return type(parts[0]).joined([part.renumbered(in_fleet) for part, in_fleet in pairs])


def _numbers(parts: Sequence[_Slice], serials: Sequence[str]) -> list[npt.NDArray[np.int64]]:
    """Return the number that each GPU of each slice has in the fleet."""
    position = {serial: number for number, serial in enumerate(serials)}
    return [
        np.array([position[serial] for serial in part.serials], dtype=np.int64) for part in parts
    ]
