"""Quarantine for unreadable rows of a ledger, so that all other rows are still processed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sqlalchemy import Boolean, Connection, Float, Integer, Row, Table

from forewarn.pipelines.runtime.progress import note

__all__ = [
    "MAX_TIME",
    "QUARANTINE_OPTION",
    "DamagedRow",
    "Quarantine",
    "get_quarantine",
    "iter_readable",
]

QUARANTINE_OPTION: Final = "forewarn_set_aside"
"""Connection option that holds the `Quarantine` of the ledger."""

MAX_TIME: Final = 2**62
"""Nanoseconds in the year 2116: a time plus a span still fits into 64 bits."""

_UNBOUNDED_COLUMNS: Final = frozenset({"id", "incident", "finding", "action", "count"})
_MAX_LISTED: Final = 1000
_ALWAYS_LISTED: Final = frozenset({"actions", "action_states"})

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """An unreadable row.

    Attributes
    ----------
    table : str
    row : str
        Primary key.
    why : str
    """

    table: str
    row: str
    why: str

    def __str__(self) -> str:
        """Return a message of one line."""
        return f"the ledger: row {self.row} of `{self.table}` is quarantined: {self.why}"


@dataclass(slots=True)
class Quarantine:
    """Unreadable rows of one ledger, each once.

    Attributes
    ----------
    rows : dict of (str, str) to DamagedRow
        By table and row; at most 1,000, plus all rows of actions, which the limits must not miss.
    """

    rows: dict[tuple[str, str], DamagedRow] = field(default_factory=dict)

    def add(self, table: str, row: str, why: str) -> None:
        """Quarantine a row, with a note the first time."""
        is_full = len(self.rows) >= _MAX_LISTED and table not in _ALWAYS_LISTED
        if (table, row) in self.rows or is_full:
            return
        damaged = DamagedRow(table, row, (why.splitlines() or [""])[0][:200])
        self.rows[table, row] = damaged
        note(str(damaged))

    def in_tables(self, *tables: str) -> list[DamagedRow]:
        """Return the quarantined rows of some tables."""
        return [damaged for damaged in self.rows.values() if damaged.table in tables]


def get_quarantine(connection: Connection) -> Quarantine:
    """Return the quarantine of a connection's ledger."""
    quarantine: Quarantine = (
        connection.get_execution_options().get(QUARANTINE_OPTION) or Quarantine()
    )
    return quarantine


def iter_readable(
    connection: Connection,
    table: Table,
    rows: Iterable[Row[Any]],
    convert: Callable[[Row[Any]], Value],
) -> Iterator[tuple[Row[Any], Value]]:
    """Yield rows with their converted values; unreadable rows are quarantined.

    Parameters
    ----------
    connection : Connection
    table : Table
        Its columns are checked in each row, because SQLite accepts any value in any column.
    rows : iterable of Row
    convert : callable
        May raise ValueError, TypeError or KeyError.
    """
    checks: list[tuple[int, str, type[Any], bool]] | None = None
    for row in rows:
        checks = _checks(table, row._fields) if checks is None else checks
        try:
            _check(row, checks)
            value = convert(row)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            get_quarantine(connection).add(table.name, _name(table, row), str(error))
        else:
            yield row, value


def _check(row: Row[Any], checks: Sequence[tuple[int, str, type[Any], bool]]) -> None:
    values = tuple(row)
    for index, name, kind, nullable in checks:
        value = values[index]
        if value is None and nullable:
            continue
        if not isinstance(value, kind):
            raise ValueError(f"`{name}` is {ascii(value)[:60]}, expected {kind.__name__}")
        if kind is int and not -MAX_TIME < value < MAX_TIME and name not in _UNBOUNDED_COLUMNS:
            raise ValueError(f"`{name}` is {value}, expected a number below 2^62")


def _checks(table: Table, names: Sequence[str]) -> list[tuple[int, str, type[Any], bool]]:
    """Return index, name, type and nullability of each column of the table among `names`."""
    return [
        (names.index(column.name), column.name, _python_type(column.type), bool(column.nullable))
        for column in table.columns
        if column.name in names
    ]


def _python_type(type_: object) -> type[Any]:
    if isinstance(type_, Boolean):
        return bool
    if isinstance(type_, Integer):
        return int
    return float if isinstance(type_, Float) else str


def _name(table: Table, row: Row[Any]) -> str:
    values = row._mapping
    names = [column.name for column in table.primary_key if column.name in values]
    return " ".join(ascii(values[name])[:60] for name in names) or "?"
