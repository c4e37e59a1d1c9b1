"""From files to records in one call: keys of all files, then texts; numbers when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from forewarn.features.records.column_files import ColumnFiles, NullCounts, RecordSource
from forewarn.features.records.earlier_states import EarlierStates, all_states
from forewarn.features.records.file_check import (
    Keys,
    States,
    Values,
    check_keys,
    check_values,
    missing_column,
)
from forewarn.features.records.keys_builder import KeysBuilder
from forewarn.features.records.row_cleaning import Spacings
from forewarn.features.records.seldom_changing import SeldomChanging
from forewarn.features.records.slices import FINEST
from forewarn.features.records.table import (
    FAILURE,
    MACHINE,
    SLOT,
    FeatureKinds,
    Records,
    RecordsError,
)
from forewarn.features.threads import in_threads, in_turn
from forewarn.features.time_units import Nanoseconds

__all__ = ["RecordSource", "RecordsQuery", "assemble", "check_numbers"]


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
    earlier: Sequence[RecordSource] = (),
    spacings: Spacings | None = None,
) -> tuple[Records, States | None]:
    """Check files and make records of them.

    Parameters
    ----------
    sources : sequence of RecordSource
        In the order of their names: of two rows of one GPU and time the later one wins.
    query : RecordsQuery
    earlier : sequence of RecordSource
        Files that hold rows before `query.start`; only what failed in those is read.
    spacings : Spacings, optional
        Of all slices of a fleet, if this is one: it alone says nothing of the interval.

    Returns
    -------
    Records
    States or None
        Earlier rows of the GPUs that were failed in any of them; None if there is no such GPU.

    Raises
    ------
    RecordsError
        If a file breaks the contract, or no record is left (`NoRecordsError`).
    """
    keys = KeysBuilder([source.n_rows for source in sources])
    for number, keys_of_file in enumerate(in_turn(partial(_read_keys, query), sources)):
        keys.put_keys(number, keys_of_file)
    pa.default_memory_pool().release_unused()  # it keeps what many threads have held
    with _naming(query.name):
        keys.number_gpus()
    with ThreadPoolExecutor(1) as pool:
        aligned = pool.submit(keys.align, query.interval, spacings)
        failed = _failed_before(query, keys.serials, earlier)
        with _naming(query.name):
            aligned.result()
    return _records(sources, query, keys), failed


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say of which records is spoken where something is wrong with all of them."""
    try:
        yield
    except RecordsError as error:
        raise type(error)(f"{name}: {error}") from None


def _failed_before(
    query: RecordsQuery, serials: Sequence[str], earlier: Sequence[RecordSource]
) -> States | None:
    """Return what older rows say of the GPUs that were failed in any of them."""
    states, read = EarlierStates(serials), partial(_read_earlier_keys, query)
    for keys in in_turn(read, earlier):
        if keys is not None and not states.add(keys):
            return all_states(serials, [k for k in in_turn(read, earlier) if k is not None])
    return states.states()


def _records(sources: Sequence[RecordSource], query: RecordsQuery, keys: KeysBuilder) -> Records:
    """Read texts and dates, and leave the numbers to be read when they are asked for."""
    kinds, line, names = query.kinds, keys.line, query.texts_in(sources)
    in_threads(partial(check_numbers, query), sources)
    texts = SeldomChanging(keys.as_read, keys.keep, names, kinds.date)
    # One column after another: the texts of a whole file take more memory than those of a GPU's
    # whole life.
    for name in (*names, *kinds.date):
        for number, values in enumerate(in_turn(partial(_read_text, query, name), sources)):
            rows = keys.rows_of(number)
            texts.put(name, rows.start, rows.stop - rows.start, values)
    pa.default_memory_pool().release_unused()
    nulls = dict(texts.nulls)
    columns = ColumnFiles(sources, kinds, keys.as_read, nulls)
    return Records(
        interval=query.interval,
        serials=keys.serials,
        gpu=line.gpu,
        time=line.time,
        filled=line.filled,
        failed=line.failed,
        order=line.order,
        columns=columns,
        dates=texts.dates(),
        texts=texts.texts(),
        counters=kinds.counter,
        events=kinds.code,
        seen=replace(keys.seen, nulls=NullCounts(columns, (*columns.names, *kinds.date), nulls)),
    )


def _read_keys(query: RecordsQuery, source: RecordSource) -> Keys:
    with source.columns() as columns:
        keys = check_keys(columns, file=source.name, start=query.start, end=query.end)
    return keys if query.slices == (0, FINEST) else keys.of_slices(*query.slices)


def _read_earlier_keys(query: RecordsQuery, source: RecordSource) -> Keys | None:
    """Return the keys of a file before the start; None if it does not say what failed."""
    with source.columns() as columns:
        if FAILURE not in columns.column_names:
            return None
        keys = check_keys(columns, file=source.name, end=query.start)
    return keys if query.slices == (0, FINEST) else keys.of_slices(*query.slices)


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


def _read_text(query: RecordsQuery, name: str, source: RecordSource) -> Values:
    """Read a column of texts or dates of a file."""
    kinds, optional = query.kinds.among({name}), query.optional
    kinds = FeatureKinds(categorical=kinds.categorical, date=kinds.date)
    with source.columns() as columns:
        optional = tuple(text for text in optional if text == name)
        return check_values(columns, file=source.name, kinds=kinds, optional=optional)


def _is_number(kind: pa.DataType) -> bool:
    """Tell whether every value of a type is a number, or null."""
    is_kind = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
    return any(is_(kind) for is_ in is_kind)
