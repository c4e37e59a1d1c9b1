"""Assembly of records from files: keys and texts at once, columns of numbers on demand."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import compress
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from forewarn.features.array_types import (
    BoolArray,
    Float32Array,
    Int32Array,
    Int64Array,
    SignedIntArray,
)
from forewarn.features.records.file_check import (
    SPARSE_COLUMNS,
    Keys,
    Values,
    check_keys,
    check_values,
    missing_column,
)
from forewarn.features.records.fleet_slices import MAX_SLICES
from forewarn.features.records.lazy_columns import (
    FileRows,
    LazyColumns,
    NullCounts,
    RecordSource,
)
from forewarn.features.records.record_table import (
    FAILURE,
    MACHINE,
    SLOT,
    CheckReport,
    FeatureKinds,
    NoRecordsError,
    Records,
    RecordsError,
    TextColumn,
    code_type,
)
from forewarn.features.records.row_cleaning import CleanRows, SpacingCheck
from forewarn.features.records.state_changes import PastStates, StateChangeScan
from forewarn.features.records.text_columns import map_texts, mark_occurring
from forewarn.features.threads import imap_threads, map_threads
from forewarn.features.time_units import Nanoseconds

__all__ = [
    "RecordKeys",
    "RecordSource",
    "RecordsQuery",
    "assemble",
    "check_numbers",
    "read_past_states",
    "texts_by_column",
]

_DICTIONARY = pa.dictionary(pa.int32(), pa.string())  # the type of text columns in Parquet files


@dataclass(frozen=True, slots=True)
class RecordsQuery:
    """The records to assemble and the columns to read.

    Attributes
    ----------
    name : str
        Source of the files, for messages.
    kinds : FeatureKinds
    interval : Nanoseconds
        Between two records of a GPU.
    groups : tuple of str
        Optional text columns in addition to the features.
    start, end : int, optional
        Only rows of [start, end), nanoseconds since 1970 UTC.
    slices : tuple of (int, int)
        Only GPUs of the slices [first, last) of `MAX_SLICES`.
    texts : tuple of str, optional
        The text columns to read instead of all of them.
    serials : set of str, optional
        Only these GPUs.
    """

    name: str
    kinds: FeatureKinds
    interval: Nanoseconds
    groups: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    slices: tuple[int, int] = (0, MAX_SLICES)
    texts: tuple[str, ...] | None = None
    serials: Set[str] | None = None

    @property
    def span(self) -> tuple[int | None, int | None]:
        """The limits of time."""
        return self.start, self.end

    def texts_in(self, sources: Sequence[RecordSource]) -> tuple[str, ...]:
        """Return the text columns to read from these files."""
        present = set().union(*(source.schema.names for source in sources))
        needed, optional = self.kinds.categorical, (MACHINE, SLOT, *self.groups)
        if self.texts is not None:
            needed, optional = (), self.texts
        return tuple(dict.fromkeys((*needed, *(name for name in optional if name in present))))

    def filter_keys(self, keys: Keys) -> Keys:
        """Return the keys without the rows of GPUs that are not requested."""
        if self.serials is not None:
            keys = keys.of_serials(self.serials)
        return keys if self.slices == (0, MAX_SLICES) else keys.in_slices(*self.slices)


class RecordKeys(NamedTuple):
    """Sorted rows of files, keys only.

    Attributes
    ----------
    serials : tuple of str
    files : list of FileRows
    clean : CleanRows
    seen : CheckReport
    """

    serials: tuple[str, ...]
    files: list[FileRows]
    clean: CleanRows
    seen: CheckReport

    @classmethod
    def read(
        cls,
        sources: Sequence[RecordSource],
        query: RecordsQuery,
        spacings: SpacingCheck | None = None,
    ) -> Self:
        """Validate the keys of files and sort their rows (`assemble`)."""
        parts = list(imap_threads(partial(_FileKeys.read, query), sources))
        serials, gpu = _merge_texts([part.serial for part in parts])
        try:
            if not len(gpu):
                raise NoRecordsError("there is no row with a serial and a timestamp.")
            time = np.concatenate([part.time for part in parts])
            failed = np.concatenate([part.failed for part in parts])
            clean = CleanRows.from_rows(gpu, time, failed, query.interval, spacings)
        except RecordsError as error:
            raise type(error)(f"{query.name}: {error}") from None
        return cls(serials, [part.file for part in parts], clean, _check_report(parts, clean))

    def records(self, query: RecordsQuery, *, once: bool = False) -> Records:
        """Read texts and dates; columns of numbers are read on demand."""
        clean, kinds, nulls = self.clean, query.kinds.numbers, dict[str, int]()
        names, numbers = query.texts_in([file.source for file in self.files]), query.kinds.numbers
        columns = LazyColumns(self.files, numbers, clean, nulls, once=once)
        texts = {name: self._text(name, query) for name in names}
        dates = {name: self._date(name) for name in query.kinds.date}
        for name, days in dates.items():
            nulls[name] = int(np.count_nonzero(np.isnan(days) & ~clean.filled))
        return Records(
            interval=query.interval,
            serials=self.serials,
            gpu=clean.gpu,
            time=clean.time,
            failed=clean.failed,
            filled=clean.filled,
            column_row=np.arange(len(clean.row), dtype=clean.row.dtype),
            columns=columns,
            dates=dates,
            texts=texts,
            counters=kinds.counter,
            seen=replace(self.seen, nulls=NullCounts(columns, (*columns.names, *dates), nulls)),
        )

    def _text(self, name: str, query: RecordsQuery) -> TextColumn:
        needed = name in query.kinds.categorical and query.texts is None
        kinds = FeatureKinds(categorical=(name,)) if needed else FeatureKinds()

        def read(file: FileRows) -> TextColumn:
            column = _values(file, kinds, (name,)).texts.get(name)
            if column is None:
                return TextColumn.unknown((), file.n_rows)
            codes = file.select(column.codes).astype(code_type(len(column.texts)))
            return TextColumn(column.texts, codes)

        texts, codes = _merge_texts(list(imap_threads(read, self.files)))
        return TextColumn(texts, codes[self.clean.row])

    def _date(self, name: str) -> Float32Array:
        def read(file: FileRows) -> Float32Array:
            return file.select(_values(file, FeatureKinds(date=(name,))).numbers[name])

        return np.concatenate(list(imap_threads(read, self.files)))[self.clean.row]


def assemble(
    sources: Sequence[RecordSource],
    query: RecordsQuery,
    spacings: SpacingCheck | None = None,
) -> Records:
    """Validate files and build records from them.

    Parameters
    ----------
    sources : sequence of RecordSource
        Sorted by name: of two rows of one GPU and time the later one wins.
    query : RecordsQuery
    spacings : SpacingCheck, optional
        Shared by all slices of a fleet, since one slice does not determine the interval.

    Raises
    ------
    RecordsError
        If a file violates the format, or no record is left (`NoRecordsError`).
    """
    keys = RecordKeys.read(sources, query, spacings)
    map_threads(partial(check_numbers, query), sources)
    return keys.records(query)


class _FileKeys(NamedTuple):
    """Keys of the valid rows of a file.

    Attributes
    ----------
    file : FileRows
    serial : TextColumn
    time : ndarray of shape (n,)
    failed : ndarray of shape (n,), bool
    seen : CheckReport
    """

    file: FileRows
    serial: TextColumn
    time: Int64Array
    failed: BoolArray
    seen: CheckReport

    @classmethod
    def read(cls, query: RecordsQuery, source: RecordSource) -> _FileKeys:
        with source.columns() as columns:
            keys = check_keys(columns, file=source.name, start=query.start, end=query.end)
        keys = query.filter_keys(keys)
        file = FileRows(source, None if keys.keep.all() else np.flatnonzero(keys.keep))
        seen = CheckReport(
            rows=keys.n_rows,
            without_key=keys.n_rows - file.n_rows,
            odd_states=keys.n_odd_states,
            naive_time=keys.naive_time,
        )
        serial = TextColumn(keys.serial.texts, file.select(keys.serial.codes))
        return cls(file, serial, file.select(keys.time), file.select(keys.failed), seen)


def _values(file: FileRows, kinds: FeatureKinds, optional: Sequence[str] = ()) -> Values:
    with file.source.columns() as columns:
        return check_values(columns, file=file.source.name, kinds=kinds, optional=optional)


def _merge_texts(columns: Sequence[TextColumn]) -> tuple[tuple[str, ...], Int32Array]:
    """Return the sorted texts that occur in any column, and the codes of all columns."""
    occurring = [_occurring(column.codes, len(column.texts)) for column in columns]
    pairs = zip(columns, occurring, strict=True)
    occur = {tuple(compress(column.texts, some.tolist())) for column, some in pairs}
    texts = tuple(sorted(set[str]().union(*occur)))
    position = {text: number for number, text in enumerate(texts)}
    kind = columns[0].codes.dtype if len(columns) else np.dtype(np.int32)
    kind = np.promote_types(kind, code_type(len(texts)))
    number = cache(
        lambda known: map_texts(known, position).astype(kind)
    )  # most files share their texts
    codes = [number(column.texts)[column.codes] for column in columns]
    return texts, np.concatenate([np.zeros(0, dtype=kind), *codes])


def _occurring(codes: SignedIntArray, n_texts: int) -> BoolArray:
    """Mark the texts that occur in a row."""
    occurs = np.zeros(n_texts, dtype=np.bool_)
    mark_occurring(codes, occurs)
    return occurs


def _check_report(parts: Sequence[_FileKeys], clean: CleanRows) -> CheckReport:
    return CheckReport(
        rows=sum(part.seen.rows for part in parts),
        without_key=sum(part.seen.without_key for part in parts),
        doubled=clean.doubled,
        too_close=clean.too_close,
        filled=int(np.count_nonzero(clean.filled)),
        gaps=clean.gaps,
        odd_states=sum(part.seen.odd_states for part in parts),
        naive_time=any(part.seen.naive_time for part in parts),
    )


def texts_by_column(
    sources: Sequence[RecordSource], query: RecordsQuery
) -> dict[str, tuple[str, ...]]:
    """Return the sorted texts of files by column; some may not occur in the requested rows.

    Raises
    ------
    RecordsError
        If a column cannot be read as text.
    """
    names = query.texts_in(sources)
    files = map_threads(partial(_texts_of_file, query, names), sources)
    return {name: tuple(sorted(set().union(*(file[name] for file in files)))) for name in names}


def _texts_of_file(
    query: RecordsQuery, names: Sequence[str], source: RecordSource
) -> dict[str, set[str]]:
    occurring: dict[str, set[str]] = {name: set() for name in names}
    with source.columns() as columns:
        for name in names:
            column = columns[name] if name in columns.column_names else None
            if (
                column is not None and column.type == _DICTIONARY
            ):  # the dictionary suffices, without the rows
                dictionaries = (set(part.dictionary.to_pylist()) for part in column.chunks)
                occurring[name] = set().union(*dictionaries) - {None}
                continue
            kinds = FeatureKinds(categorical=query.kinds.among({name}).categorical)
            values = check_values(columns, file=source.name, kinds=kinds, optional=(name,))
            occurring[name].update(*(text.texts for text in values.texts.values()))
    return occurring


def read_past_states(files: Sequence[RecordSource], moment: int | None) -> PastStates:
    """Return the states before a moment of all GPUs that were failed in any row.

    Parameters
    ----------
    files : sequence of RecordSource
        Sorted by name.
    moment : int, optional
        Nanoseconds since 1970 UTC.

    Raises
    ------
    RecordsError
        If a file violates the format.
    """
    files = [file for file in files if FAILURE in file.schema.names]

    def keys_of(file: RecordSource) -> Keys:
        with file.columns() as columns:
            return check_keys(columns, file=file.name, end=moment)

    states = StateChangeScan()
    for keys in imap_threads(keys_of, files):
        if not states.add(keys):
            return PastStates.from_all_rows(imap_threads(keys_of, files))
    pa.default_memory_pool().release_unused()
    return states.past()


def check_numbers(query: RecordsQuery, source: RecordSource) -> None:
    """Check that a file has all columns of numbers; validate columns of other types."""
    names, kinds = source.schema.names, query.kinds
    numbers = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code)
    numbers = tuple(name for name in numbers if name in names or name not in SPARSE_COLUMNS)
    for name in numbers:
        if name not in names:
            raise missing_column(source.name, name, names)
    doubtful = tuple(name for name in numbers if not _is_number(source.schema.field(name).type))
    if doubtful:
        with source.columns() as columns:
            check_values(columns, file=source.name, kinds=FeatureKinds(float=doubtful))


def _is_number(kind: pa.DataType) -> bool:
    """Tell whether every value of a type is a number, or null."""
    is_kind = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(is_(kind) for is_ in is_kind)
