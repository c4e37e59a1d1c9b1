"""A fleet on disk as it stood at a moment: read slice by slice, as often as it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from forewarn.features.records.assembly import RecordsQuery, assemble, check_numbers, read_past
from forewarn.features.records.column_files import ColumnFiles, NullCounts
from forewarn.features.records.earlier_states import PastStates
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.hours import Hours
from forewarn.features.records.keys_as_read import KeysAsRead
from forewarn.features.records.line import Line
from forewarn.features.records.out_of_service import OutOfService
from forewarn.features.records.row_cleaning import Spacings
from forewarn.features.records.runs import Runs
from forewarn.features.records.slices import slice_ranges
from forewarn.features.records.spillable_array import ArrayAllocator, SpillableArray
from forewarn.features.records.table import CheckReport, NoRecordsError, Records, TextColumn
from forewarn.features.records.text_columns import numbers_of
from forewarn.features.records.timeline import FleetSlice, Timeline, lay_out
from forewarn.features.threads import in_threads, in_turn, prefetched
from forewarn.pipelines.storage.file_slice import FileSlice
from forewarn.pipelines.storage.parquet_files import ParquetSource, read_runs
from forewarn.pipelines.storage.spill_space import SpillSpace

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
_SLICES_AT_ONCE = 2  # whose keys are in memory: much of the work on a slice is done by one thread


class _Slice(NamedTuple):
    """What is kept of a slice between two readings.

    Of files that are compacted, where times are even, nothing of it grows with the records; of
    others the order of their rows does, and their times. Where there are several slices, what is
    kept of them lies on disk.

    Attributes
    ----------
    slices : tuple of (int, int)
    serials : tuple of str
        Of its GPUs, sorted.
    line : Line
        Of all records that were read, those before `StoredFleet.since` too.
    keys : KeysAsRead
        Of all rows of the files.
    seen : CheckReport
    failures, episodes : Failures
        As they were known, and as a timeline has them.
    texts, dates : dict
        As of `Records`.
    out_of_service : OutOfService
    hours : Hours
    first : int
        The first moment of which there is a record.
    """

    slices: tuple[int, int]
    serials: tuple[str, ...]
    line: Line
    keys: KeysAsRead
    seen: CheckReport
    failures: Failures
    episodes: Failures
    texts: dict[str, TextColumn]
    dates: dict[str, Runs]
    out_of_service: OutOfService
    hours: Hours
    first: int

    def on_disk(self, space: SpillSpace) -> _Slice:
        """Return the same with the arrays that grow out of memory."""
        line, keys = self.line.moved(space.moved), self.keys.moved(space.moved)
        space.spill()
        return self._replace(line=line, keys=keys)


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
    hours: Hours
    first: int
    selection: _Selection
    _slices: tuple[_Slice, ...]
    _numbers: tuple[npt.NDArray[np.int64], ...]
    _space: SpillSpace
    since: int | None = None

    @classmethod
    def of(
        cls,
        sources: Sequence[ParquetSource],
        query: RecordsQuery,
        older: Sequence[ParquetSource],
        known: Known,
        look: Callable[[Timeline], _Selection],
        n_slices: int,
        since: int | None = None,
    ) -> StoredFleet[_Selection]:
        """Read the keys and the texts of all slices.

        Parameters
        ----------
        sources, query
            As of `assemble`.
        older : sequence of ParquetSource
            Files that hold rows before those, as of `read_past`.
        known : callable
            Adds to records and their failures what else was known of them.
        look : callable
            Finds what is wanted, such as instances, in the timeline of a slice.
        n_slices : int
            1 to 64; a slice without a record is left out.
        since : int, optional
            See the attribute.

        Raises
        ------
        RecordsError
            If a file breaks the contract, or no record is left.
        """
        keys = replace(query, kinds=replace(query.kinds.among(()), **_texts_of(query)))
        spacings, space = Spacings(), SpillSpace()

        def read(slices: tuple[int, int]) -> tuple[_Slice, _Selection] | NoRecordsError:
            query_of_slice = replace(keys, slices=slices)
            try:
                part, timeline = _read_slice(sources, query_of_slice, past, spacings, known, since)
                return part if n_slices == 1 else part.on_disk(space), look(timeline)
            except NoRecordsError as error:
                return error

        with ThreadPoolExecutor(1) as beside:
            past = beside.submit(read_past, older, query.start).result
            read_runs(sources)
            read_or_empty = list(in_turn(read, slice_ranges(n_slices), _SLICES_AT_ONCE))
        with_records = [each for each in read_or_empty if not isinstance(each, NoRecordsError)]
        if not with_records and isinstance(read_or_empty[0], NoRecordsError):
            raise read_or_empty[0]
        parts = [part for part, _ in with_records]
        for source in sources:  # columns of numbers alone are read from now on
            source.forget_runs()
        spacings.check(query.name)
        in_threads(partial(check_numbers, query), sources)
        serials = tuple(sorted(serial for part in parts for serial in part.serials))
        numbers = _numbers(parts, serials)
        return cls(
            sources,
            query,
            serials,
            failures=_failures_of(parts, numbers),
            hours=Hours.joined(part.hours for part in parts),
            first=min(part.first for part in parts),
            selection=_joined([selection for _, selection in with_records], numbers),
            _slices=tuple(_with_fleet_texts(parts)),
            _numbers=tuple(numbers),
            _space=space,
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
        return prefetched(map(self._slice, self._slices, self._numbers))

    def allocator(self) -> ArrayAllocator:
        """Return the allocator of what outlives a slice: on disk, unless there is one slice."""
        return SpillableArray if self.n_slices == 1 else SpillSpace().zeros

    def _slice(self, part: _Slice, numbers: npt.NDArray[np.int64]) -> FleetSlice:
        self._space.spill()
        records = replace(
            _begun(self._records(part), self.since),
            texts=part.texts,
            dates=part.dates,
            out_of_service=part.out_of_service,
        )
        timeline = replace(lay_out(records, part.failures), hours=self.hours)
        return FleetSlice(timeline, numbers)

    def _records(self, part: _Slice) -> Records:
        """Return the records of a slice with its columns of numbers."""
        files = [FileSlice.of(s, part.slices, self.query.span) for s in self.sources]
        kinds, nulls = self.query.kinds.numbers, dict[str, int]()
        columns = ColumnFiles(files, kinds, part.keys, nulls, once=True)
        return Records(
            self.query.interval,
            part.serials,
            part.line,
            columns,
            counters=kinds.counter,
            events=kinds.code,
            seen=replace(part.seen, nulls=NullCounts(columns, columns.names, nulls)),
        )


def _texts_of(query: RecordsQuery) -> dict[str, tuple[str, ...]]:
    """Return the kinds of columns that are read once and kept."""
    return {"categorical": query.kinds.categorical, "date": query.kinds.date}


def _read_slice(
    sources: Sequence[ParquetSource],
    query: RecordsQuery,
    past: Callable[[], PastStates],
    spacings: Spacings,
    known: Known,
    since: int | None,
) -> tuple[_Slice, Timeline]:
    """Read what is kept of a slice, and the timeline of its keys."""
    files = [FileSlice.of(source, query.slices, query.span) for source in sources]
    records = assemble(files, query, spacings)
    line, seen = records.line, replace(records.seen, nulls={})
    keys = cast(ColumnFiles, records.columns).keys
    states = past().of_gpus(records.serials)
    records, failures = known(_begun(records, since), Failures.of_records(records, states))
    timeline = lay_out(records, failures)
    part = _Slice(
        query.slices,
        records.serials,
        line,
        keys,
        seen,
        failures,
        timeline.failures,
        records.texts,
        records.dates,
        records.out_of_service,
        Hours.of(timeline.records.line, records.interval),
        records.first,
    )
    return part, timeline


def _begun(records: Records, since: int | None) -> Records:
    """Leave out the records before a moment; refuse a slice that has none but those."""
    begun = records if since is None else records.between(since, NEVER)
    if not len(begun):
        raise NoRecordsError("there is no record.")
    return begun


def _with_fleet_texts(parts: Sequence[_Slice]) -> list[_Slice]:
    """Give the texts of all slices the same numbers."""
    texts = {
        name: tuple(sorted(set().union(*(part.texts[name].texts for part in parts))))
        for name in parts[0].texts
    }
    position = {name: {t: i for i, t in enumerate(known)} for name, known in texts.items()}

    def renumbered(name: str, column: TextColumn) -> TextColumn:
        number = numbers_of(column.texts, position[name])
        return TextColumn(texts[name], column.runs.renumbered(number))

    return [
        part._replace(texts={name: renumbered(name, c) for name, c in part.texts.items()})
        for part in parts
    ]


def _failures_of(parts: Sequence[_Slice], numbers: Sequence[npt.NDArray[np.int64]]) -> Failures:
    """Return the failures of all slices by GPU of the fleet and time."""
    failures = Failures.none()
    for part, in_fleet in zip(parts, numbers, strict=True):
        gpu = in_fleet.astype(np.int32)[part.episodes.gpu]
        failures = failures.joined(replace(part.episodes, gpu=gpu))
    return failures.take(np.lexsort((failures.failed_at, failures.gpu)))


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
