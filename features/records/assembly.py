"""From files to records in one call: keys of all files, then texts; numbers when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import NamedTuple

import pyarrow as pa

from forewarn.features.records.column_files import ColumnFiles, NullCounts, RecordSource
from forewarn.features.records.earlier_states import EarlierStates, PastStates
from forewarn.features.records.file_check import (
    Keys,
    Values,
    check_keys,
    check_values,
    missing_column,
)
from forewarn.features.records.file_runs import FileRuns, Within
from forewarn.features.records.key_runs import KeyRuns
from forewarn.features.records.keys_as_read import RowKeys
from forewarn.features.records.keys_builder import KeysBuilder
from forewarn.features.records.number_columns import days_of
from forewarn.features.records.row_cleaning import Spacings
from forewarn.features.records.run_keys import RunCleaning
from forewarn.features.records.seldom_changing import RowsOfRuns, SeldomChanging
from forewarn.features.records.slices import FINEST, serials_within
from forewarn.features.records.table import (
    FAILURE,
    MACHINE,
    SLOT,
    FeatureKinds,
    IntArray,
    Records,
    RecordsError,
)
from forewarn.features.threads import in_threads, in_turn
from forewarn.features.time_units import Nanoseconds

__all__ = ["RecordSource", "RecordsQuery", "assemble", "check_numbers", "read_past"]

_ROWS_PER_RUN = 4  # of files whose runs are looked for: fewer are not worth it
_FEW_RUNS = 2**16  # are no matter, however few rows they have


@dataclass(frozen=True, slots=True)
class RecordsQuery:
    """The records to assemble and the columns to read.

    Attributes
    ----------
    name : str
        Where the files come from, for messages.
    kinds : FeatureKinds
    interval : Nanoseconds
        Between two records of a GPU.
    groups : tuple of str
        Text columns beside the features; a file need not have them.
    start, end : int, optional
        Only rows of [start, end), nanoseconds since 1970 UTC.
    slices : tuple of (int, int)
        Only GPUs of the finest slices [first, last).
    """

    name: str
    kinds: FeatureKinds
    interval: Nanoseconds
    groups: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    slices: tuple[int, int] = (0, FINEST)

    @property
    def span(self) -> tuple[int | None, int | None]:
        """The limits of time."""
        return self.start, self.end

    @property
    def optional(self) -> tuple[str, ...]:
        """The text columns beside the features."""
        names = dict.fromkeys((MACHINE, SLOT, *self.groups))
        return tuple(name for name in names if name not in self.kinds.names)

    def texts_in(self, sources: Sequence[RecordSource]) -> tuple[str, ...]:
        """Return the text columns of records from these files."""
        present = set().union(*(source.schema.names for source in sources))
        optional = (name for name in self.optional if name in present)
        return tuple(dict.fromkeys((*self.kinds.categorical, *optional)))


def assemble(
    sources: Sequence[RecordSource],
    query: RecordsQuery,
    spacings: Spacings | None = None,
) -> Records:
    """Check files and make records of them.

    Parameters
    ----------
    sources : sequence of RecordSource
        In the order of their names: of two rows of one GPU and time the later one wins.
    query : RecordsQuery
    spacings : Spacings, optional
        Of all slices of a fleet, if this is one: it alone says nothing of the interval.

    Raises
    ------
    RecordsError
        If a file breaks the contract, or no record is left (`NoRecordsError`).
    """
    files = [_File(source, source.runs()) for source in sources]
    keys = _in_runs(files, query, spacings) or _in_rows(sources, query, spacings)
    return _records(files, query, keys)


class _File(NamedTuple):
    """A file, and its runs if they are known."""

    source: RecordSource
    runs: KeyRuns | None

    @property
    def is_even(self) -> bool:
        """Whether the times of its rows are known from the runs."""
        return self.runs is not None and self.runs.step is not None

    def has_runs_of(self, name: str) -> bool:
        """Tell whether a column of texts or dates is known from the runs."""
        return self.runs is not None and name in self.runs.texts


def _in_runs(
    files: Sequence[_File], query: RecordsQuery, spacings: Spacings | None
) -> RunCleaning | None:
    """Bring the keys of all files into line as runs; None where rows are wanted.

    Those are looked for where they are not known: rows that come by time are in runs once they
    are taken by GPU.
    """
    runs_of = partial(_runs_of, query, serials_within(*query.slices))
    # What is in memory takes less time than to hand it to a thread.
    known = all(file.is_even for file in files)
    runs, n_rows, n_runs = [], 0, 0
    for of_file in map(runs_of, files) if known else in_turn(runs_of, files):
        runs.append(of_file)
        n_rows, n_runs = n_rows + int(of_file.n_rows.sum()), n_runs + len(of_file.n_rows)
        if n_runs > max(_FEW_RUNS, n_rows // _ROWS_PER_RUN):
            return None
    pa.default_memory_pool().release_unused()  # it keeps what many threads have held
    sizes = [file.source.n_rows for file in files]
    with _naming(query.name):
        return RunCleaning.of(runs, sizes, query.interval, spacings)


def _in_rows(
    sources: Sequence[RecordSource], query: RecordsQuery, spacings: Spacings | None
) -> KeysBuilder:
    """Bring the keys of files into line row by row."""
    keys = KeysBuilder([source.n_rows for source in sources])
    for number, keys_of_file in enumerate(in_turn(partial(_read_keys, query), sources)):
        keys.put_keys(number, keys_of_file)
    pa.default_memory_pool().release_unused()
    with _naming(query.name):
        keys.number_gpus()
        keys.align(query.interval, spacings)
    return keys


def _runs_of(query: RecordsQuery, within: Within, file: _File) -> FileRuns:
    """Return the runs of a file, found among its rows where they are not known."""
    runs = None
    if file.runs is not None:
        runs = FileRuns.of(file.runs, query.start, query.end, within)
    return runs or FileRuns.of_rows(_read_keys(query, file.source))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say of which records is spoken where something is wrong with all of them."""
    try:
        yield
    except RecordsError as error:
        raise type(error)(f"{name}: {error}") from None


def read_past(files: Sequence[RecordSource], moment: int | None) -> PastStates:
    """Return what the rows of files before a moment say of the GPUs that were failed in any.

    Parameters
    ----------
    files : sequence of RecordSource
        In the order of their names.
    moment : int, optional
        Nanoseconds since 1970 UTC.

    Raises
    ------
    RecordsError
        If a file breaks the contract.
    """
    files = [file for file in files if FAILURE in file.schema.names]
    states = EarlierStates()
    for keys in in_turn(partial(_changes_before, moment), files):
        if not states.add(keys):
            every = in_turn(lambda file: _keys_within(file, None, moment), files)
            return PastStates.of_all_rows(every)
    pa.default_memory_pool().release_unused()  # it keeps what many threads have held
    return states.past()


def _records(
    files: Sequence[_File], query: RecordsQuery, keys: KeysBuilder | RunCleaning
) -> Records:
    """Read texts and dates, and leave the numbers to be read when they are asked for."""
    sources = [file.source for file in files]
    kinds, names, as_read = query.kinds, query.texts_in(sources), keys.as_read
    in_threads(partial(check_numbers, query), sources)
    texts = SeldomChanging(as_read, keys.keep, names, kinds.date)
    # One column after another: the texts of a whole file take more memory than those of a GPU's
    # whole life.
    pairs = list(product((*names, *kinds.date), range(len(files))))

    def read(column: tuple[str, int]) -> tuple[Values, IntArray | RowsOfRuns | None]:
        name, number = column
        values, of_rows = _read_text(query, name, files[number])
        order, has_it = as_read.order_in(number), values.numbers or values.texts
        if isinstance(as_read, RowKeys) or order is None or of_rows is not None or not has_it:
            return values, of_rows
        return RowsOfRuns.in_order(values, name, order, as_read.part(keys.rows_of(number)))

    known = all(files[number].has_runs_of(name) for name, number in pairs)
    columns = map(read, pairs) if known else in_turn(read, pairs)
    for (name, number), values in zip(pairs, columns, strict=True):
        texts.put(name, keys.rows_of(number), *values)
    pa.default_memory_pool().release_unused()
    nulls = dict(texts.nulls)
    numbers = ColumnFiles(sources, kinds, as_read, nulls)
    return Records(
        interval=query.interval,
        serials=keys.serials,
        line=keys.line,
        columns=numbers,
        dates=texts.dates(),
        texts=texts.texts(),
        counters=kinds.counter,
        events=kinds.code,
        seen=replace(keys.seen, nulls=NullCounts(numbers, (*numbers.names, *kinds.date), nulls)),
    )


def _read_keys(query: RecordsQuery, source: RecordSource) -> Keys:
    keys = _keys_within(source, query.start, query.end)
    return keys if query.slices == (0, FINEST) else keys.of_slices(*query.slices)


def _keys_within(source: RecordSource, start: int | None, end: int | None) -> Keys:
    """Read the keys of a file, from its runs if there are any."""
    runs = source.runs()
    keys = None if runs is None else runs.keys(start, end)
    if keys is not None:
        return keys
    with source.columns() as columns:
        return check_keys(columns, file=source.name, start=start, end=end)


def _changes_before(moment: int | None, source: RecordSource) -> Keys:
    """Return keys of a file before a moment, among which no change of state is missing."""
    runs = source.runs(with_texts=False)
    ends = None if runs is None else runs.ends(moment)
    return _keys_within(source, None, moment) if ends is None else ends


def check_numbers(query: RecordsQuery, source: RecordSource) -> None:
    """Check that a file has all columns of numbers; read those that may turn out to be none."""
    names, kinds = source.schema.names, query.kinds
    numbers = (*kinds.float, *kinds.counter, *kinds.binary, *kinds.code)
    for name in numbers:
        if name not in names:
            raise missing_column(source.name, name, names)
    doubtful = tuple(name for name in numbers if not _is_number(source.schema.field(name).type))
    if doubtful:
        with source.columns() as columns:
            check_values(columns, file=source.name, kinds=FeatureKinds(float=doubtful))


def _read_text(query: RecordsQuery, name: str, file: _File) -> tuple[Values, IntArray | None]:
    """Read a column of texts or dates of a file, and of how many rows each value is.

    None stands for one row each.
    """
    kinds, optional = query.kinds.among({name}), query.optional
    kinds = FeatureKinds(categorical=kinds.categorical, date=kinds.date)
    optional = tuple(text for text in optional if text == name)
    source, runs = file
    if runs is not None and file.has_runs_of(name):
        if name not in kinds.date:
            return Values({}, {}, {}, {name: runs.text(name)}), runs.n_rows
        with suppress(pa.ArrowInvalid):
            return Values({name: days_of(runs.texts[name])}, {}, {}, {}), runs.n_rows
        return check_values(runs.table(name), file=source.name, kinds=kinds), runs.n_rows
    with source.columns() as columns:
        return check_values(columns, file=source.name, kinds=kinds, optional=optional), None


def _is_number(kind: pa.DataType) -> bool:
    """Tell whether every value of a type is a number, or null."""
    is_kind = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(is_(kind) for is_ in is_kind)
