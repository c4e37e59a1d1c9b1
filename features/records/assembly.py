"""From files to records in one call: keys of all files, then values while those come into line."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from forewarn.features.records.file_check import (
    Columns,
    Keys,
    States,
    Values,
    check_keys,
    check_values,
)
from forewarn.features.records.records_builder import RecordsBuilder
from forewarn.features.records.table import (
    FAILURE,
    MACHINE,
    SLOT,
    FeatureKinds,
    Records,
    RecordsError,
)
from forewarn.features.threads import n_threads
from forewarn.features.time_units import Nanoseconds

__all__ = ["RecordSource", "RecordsQuery", "assemble"]


class RecordSource(Protocol):
    """A file of records that can be opened more than once, and stays the same."""

    @property
    def name(self) -> str:
        """The name of the file, for messages."""
        ...

    @property
    def n_rows(self) -> int:
        """The number of its rows."""
        ...

    @property
    def column_names(self) -> list[str]:
        """The names of its columns."""
        ...

    def columns(self) -> AbstractContextManager[Columns]:
        """Open its columns."""
        ...


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
    """

    name: str
    kinds: FeatureKinds
    interval: Nanoseconds
    groups: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None

    @property
    def optional(self) -> tuple[str, ...]:
        """The text columns beside the features."""
        names = dict.fromkeys((MACHINE, SLOT, *self.groups))
        return tuple(name for name in names if name not in self.kinds.names)

    def texts_in(self, sources: Sequence[RecordSource]) -> tuple[str, ...]:
        """Return the text columns of records from these files."""
        present = set().union(*(source.column_names for source in sources))
        optional = (name for name in self.optional if name in present)
        return tuple(dict.fromkeys((*self.kinds.categorical, *optional)))


def assemble(
    sources: Sequence[RecordSource], query: RecordsQuery, earlier: Sequence[RecordSource] = ()
) -> tuple[Records, States | None]:
    """Check files and make records of them.

    Parameters
    ----------
    sources : sequence of RecordSource
        In the order of their names: of two rows of one GPU and time the later one wins.
    query : RecordsQuery
    earlier : sequence of RecordSource
        Files that hold rows before `query.start`; only what failed in those is read.

    Returns
    -------
    Records
    States or None
        Earlier rows of the GPUs that were failed in any of them; None if there is no such GPU.

    Raises
    ------
    RecordsError
        If a file breaks the contract, or no record is left.
    """
    n_rows = [source.n_rows for source in sources]
    builder = RecordsBuilder(n_rows, query.kinds, query.texts_in(sources))
    with ThreadPoolExecutor(n_threads()) as pool:
        for number, keys in enumerate(pool.map(partial(_read_keys, query), sources)):
            builder.put_keys(number, keys)
        aligned = pool.submit(builder.align, query.interval)
        earlier_keys = pool.map(partial(_read_earlier_keys, query), earlier)
        read_values = partial(_read_values, query, builder)
        values_of_files = pool.map(read_values, range(len(sources)), sources)
        try:
            aligned.result()
        except RecordsError as error:
            raise RecordsError(f"{query.name}: {error}") from None
        failed = builder.failed_before([keys for keys in earlier_keys if keys is not None])
        for number, values in enumerate(values_of_files):
            builder.put(number, values)
        return builder.records(), failed


def _read_keys(query: RecordsQuery, source: RecordSource) -> Keys:
    with source.columns() as columns:
        return check_keys(columns, file=source.name, start=query.start, end=query.end)


def _read_earlier_keys(query: RecordsQuery, source: RecordSource) -> Keys | None:
    """Return the keys of a file before the start; None if it does not say what failed."""
    with source.columns() as columns:
        if FAILURE not in columns.column_names:
            return None
        return check_keys(columns, file=source.name, end=query.start)


def _read_values(
    query: RecordsQuery, builder: RecordsBuilder, number: int, source: RecordSource
) -> Values:
    room = builder.room(number)
    with source.columns() as columns:
        return check_values(
            columns, file=source.name, kinds=query.kinds, optional=query.optional, room=room
        )
