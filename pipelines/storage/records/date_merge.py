"""Merging of the files of one date: sorted by slice, serial and time, without duplicates."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.file_check import Keys, check_keys
from forewarn.features.records.fleet_slices import MAX_SLICES, assign_slices, slice_ranges
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.record_table import FAILURE
from forewarn.features.records.text_columns import map_texts
from forewarn.features.threads import map_threads, prefetch
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.pipelines.storage.records.compaction_metadata import CompactionMetadata, SourceStamp
from forewarn.pipelines.storage.records.file_slice import FileSlice
from forewarn.pipelines.storage.records.merged_schema import MergedSchema
from forewarn.pipelines.storage.records.ordered_column import reorder_column, without_unused_texts
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.records.spill_partitions import SpillPartitions

__all__ = ["MergeCounts", "merge_date", "stamp_of_source"]

_MAX_CELLS_IN_MEMORY = (
    16 << 20
)  # rows times columns; about 300 MiB while they are sorted and written
_ROWS_PER_GROUP = 1 << 20
_MIN_ROWS_PER_GROUP = 1 << 15  # smaller row groups cost more than they save
_ALL_SLICES = (0, MAX_SLICES)
_KEYLESS_SLICE = MAX_SLICES - 1  # rows without a serial or a time belong to no GPU and come last


class MergeCounts(NamedTuple):
    """Number of rows read, of duplicates dropped, and of row groups of a merged date."""

    rows: int
    doubled: int
    row_groups: int


class _Rows(NamedTuple):
    """Rows of some slices, sorted by slice, serial and time, without duplicates.

    Attributes
    ----------
    columns : list of pyarrow.Array
        Each of shape (n,).
    slices : ndarray of shape (n,), uint8
        Slice of each row.
    doubled : int
        Number of duplicates dropped.
    """

    columns: list[pa.Array]
    slices: npt.NDArray[np.uint8]
    doubled: int


@dataclass(slots=True)
class _RowCollector:
    """An accumulator of the rows of the slices [first, last), filled file by file."""

    schema: MergedSchema
    first: int
    last: int
    tables: list[pa.Table] = field(default_factory=list)
    codes: list[npt.NDArray[np.int32]] = field(default_factory=list)
    texts: list[tuple[str, ...]] = field(default_factory=list)
    times: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def add(self, table: pa.Table, file: str) -> None:
        """Add the rows of these slices from a part of a file."""
        keys = _keys_of(table, file)
        codes = np.where(keys.keep, keys.serial.codes, -1)
        times = np.where(keys.keep, keys.time, 0)
        if (self.first, self.last) != _ALL_SLICES:
            slices = _slice_of_each(keys)
            within = (slices >= self.first) & (slices < self.last)
            if not within.all():
                table, codes, times = table.filter(pa.array(within)), codes[within], times[within]
        self.tables.append(self.schema.working(table, file))
        self.codes.append(codes)
        self.texts.append(keys.serial.texts)
        self.times.append(times)

    def rows(self) -> _Rows:
        """Return all rows sorted; of duplicates the last one is kept, as on reading."""
        distinct = set(self.texts)  # most files share their texts
        texts = sorted(set().union(*distinct))
        slices = assign_slices(texts)
        by_slice = np.argsort(slices, kind="stable")
        position = {texts[number]: rank for rank, number in enumerate(by_slice.tolist())}
        # Code -1, no serial, becomes the last rank.
        number = {t: _with_last(map_texts(t, position), len(texts)) for t in distinct}
        pairs = zip(self.texts, self.codes, strict=True)
        none = np.zeros(0, dtype=np.int32)
        rank = np.concatenate([none, *(number[names][codes] for names, codes in pairs)])
        time = np.concatenate([none.astype(np.int64), *self.times])
        order = stable_order(rank, time)
        rank, time = rank[order], time[order]
        doubled = (np.diff(rank) == 0) & (np.diff(time) == 0) & (rank[1:] < len(texts))
        stays = np.append(~doubled, True)[: len(rank)]
        slice_of_rank = np.append(slices[by_slice], np.uint8(_KEYLESS_SLICE))
        empty = self.schema.working_schema.empty_table()
        columns = pa.concat_tables([empty, *self.tables]).unify_dictionaries().columns
        self.tables.clear()
        rows, left = pa.array(order[stays].astype(np.uint32)), dict(enumerate(columns))
        del columns  # each is released once it is sorted, so that only one exists twice
        in_order = map_threads(
            lambda position: reorder_column(left.pop(position), rows), list(left)
        )
        return _Rows(in_order, slice_of_rank[rank[stays]], int(doubled.sum()))


def _keys_of(table: pa.Table, file: str) -> Keys:
    return check_keys(table.select([n for n in table.column_names if n != FAILURE]), file=file)


def _slice_of_each(keys: Keys) -> npt.NDArray[np.uint8]:
    codes = np.where(keys.keep, keys.serial.codes, -1)
    return _slices_and_none(keys.serial.texts)[codes]


@lru_cache(2)  # most files of a date share their serials
def _slices_and_none(serials: tuple[str, ...]) -> npt.NDArray[np.uint8]:
    return np.append(assign_slices(serials), np.uint8(_KEYLESS_SLICE))


def _with_last(numbers: npt.NDArray[np.int32], number: int) -> npt.NDArray[np.int32]:
    numbers[-1] = number
    return numbers


def merge_date(sources: Sequence[ParquetSource], out: Path) -> MergeCounts:
    """Write all rows of the files of one date as one compacted file.

    Many rows are partitioned by ranges of slices on the disk of `out`, and each partition is sorted
    separately, so that memory is bounded.

    Parameters
    ----------
    sources : sequence of ParquetSource
        Sorted by name: of two rows of one GPU and time the later one is kept.
    out : Path

    Raises
    ------
    RecordsError
        If a file cannot be read.
    IncompatibleSchemasError
        If the columns of the files cannot be combined.
    ReplacedFileError
        If a file is replaced in the meantime.
    """
    schema = MergedSchema.from_sources(sources)
    n_rows = sum(source.n_rows for source in sources)
    n_parts = _number_of_parts(n_rows * len(schema.target))
    n_ranges = max(n_parts, _power_of_two(n_rows // _MIN_ROWS_PER_GROUP, up=False))
    slices: list[tuple[int, int]] = []
    written = doubled = 0
    stored = _names_in_files(sources)
    with pq.ParquetWriter(
        arrow_path(out),
        _with_names(schema.working_schema, stored),
        compression="zstd",
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        for (first, last), rows in _parts_of_date(sources, schema, n_parts, out.parent):
            doubled += rows.doubled
            written += len(rows.slices)
            ranges = [r for r in slice_ranges(n_ranges) if first <= r[0] < last]
            for span, table in prefetch(_row_groups(rows, ranges, schema)):
                named = table.rename_columns([stored[name] for name in table.column_names])
                writer.write_table(named, row_group_size=len(table))
                slices.append(span)
            pa.default_memory_pool().release_unused()  # the pool keeps the memory of many threads
        form = CompactionMetadata(tuple(slices), tuple(map(stamp_of_source, sources)))
        # Texts are written as dictionaries, which is faster; this metadata restores their type.
        types = base64.b64encode(
            _with_names(schema.target, stored).serialize().to_pybytes()
        ).decode()
        writer.add_key_value_metadata({"ARROW:schema": types} | form.metadata())
    return MergeCounts(written, doubled, len(slices))


def _names_in_files(sources: Sequence[ParquetSource]) -> dict[str, str]:
    """Return the name that each column has in the files, that of the first file if they differ."""
    names: dict[str, str] = {}
    for source in sources:
        names = source.names_in_file | names
    return names


def _with_names(schema: pa.Schema, names: Mapping[str, str]) -> pa.Schema:
    """Return a schema with other names of its columns."""
    return pa.schema([field.with_name(names[field.name]) for field in schema], schema.metadata)


def stamp_of_source(source: ParquetSource) -> SourceStamp:
    """Return the entry of a source file in the compaction metadata."""
    return SourceStamp(source.path.name, source.stamp.size, source.stamp.modified)


def _number_of_parts(n_cells: int) -> int:
    n_parts = _power_of_two(-(-n_cells // _MAX_CELLS_IN_MEMORY))
    # In addition to one part, buffers of other parts are in memory.
    return 1 if n_parts == 1 else min(2 * n_parts, MAX_SLICES)


def _power_of_two(n: int, *, up: bool = True) -> int:
    """Round to a power of two from 1 to 64, up or down."""
    power = 1
    while power < MAX_SLICES and (power if up else 2 * power - 1) < n:
        power *= 2
    return power


def _parts_of_date(
    sources: Sequence[ParquetSource], schema: MergedSchema, n_parts: int, folder: Path
) -> Iterator[tuple[tuple[int, int], _Rows]]:
    """Yield the rows of equal ranges of slices, from all files.

    Of compacted files only the row groups of these slices are read. Other files are read once and
    partitioned.
    """
    if n_parts == 1:
        yield _ALL_SLICES, _gathered(schema, _ALL_SLICES, _files(sources)).rows()
        return
    compacted = list(takewhile(lambda source: source.form is not None, sources))
    at_once = min(n_parts * _MIN_ROWS_PER_GROUP, _ROWS_PER_GROUP)
    # An unnamed file, which disappears however the process ends.
    with tempfile.TemporaryFile(dir=folder) as file:
        divided = SpillPartitions(file, schema.working_schema)
        for name, table in prefetch(_batches(sources[len(compacted) :], _ALL_SLICES, at_once)):
            slices = _slice_of_each(_keys_of(table, name))
            divided.add(schema.working(table, name), slices // (MAX_SLICES // n_parts))
        for number, span in enumerate(slice_ranges(n_parts)):
            gathering = _gathered(schema, span, _batches(compacted, span, at_once))
            gathering.add(divided.rows(number), str(folder))
            yield span, gathering.rows()


def _gathered(
    schema: MergedSchema, span: tuple[int, int], tables: Iterator[tuple[str, pa.Table]]
) -> _RowCollector:
    """Collect the rows of some slices."""
    gathering = _RowCollector(schema, *span)
    for name, table in prefetch(tables):
        gathering.add(table, name)
    return gathering


def _files(sources: Sequence[ParquetSource]) -> Iterator[tuple[str, pa.Table]]:
    for source in sources:
        with source.opened() as file:
            yield source.name, file.read().rename_columns(source.column_names)


def _batches(
    sources: Sequence[ParquetSource], span: tuple[int, int], n_rows: int
) -> Iterator[tuple[str, pa.Table]]:
    """Yield parts of `n_rows` rows of the files for some slices, with the file names."""
    for source in sources:
        groups = FileSlice.for_slices(source, span).groups
        with source.opened() as file:
            for batch in file.iter_batches(n_rows, row_groups=groups):
                table = pa.Table.from_batches([batch])
                yield source.name, table.rename_columns(source.column_names)


def _row_groups(
    rows: _Rows, ranges: Sequence[tuple[int, int]], schema: MergedSchema
) -> Iterator[tuple[tuple[int, int], pa.Table]]:
    """Yield the rows of each range of slices, in several parts if they are many."""
    for low, high in ranges:
        start, end = np.searchsorted(rows.slices, [low, high]).tolist()
        for part in range(start, end, _ROWS_PER_GROUP):
            n = min(_ROWS_PER_GROUP, end - part)
            arrays = [without_unused_texts(column.slice(part, n)) for column in rows.columns]
            yield (low, high), pa.Table.from_arrays(arrays, schema=schema.working_schema)
