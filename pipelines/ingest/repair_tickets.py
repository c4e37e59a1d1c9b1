"""Repair tickets written by people; each row is accepted or rejected separately."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from forewarn.features.records.record_table import RecordsError
from forewarn.features.telemetry.export_columns import TICKET_EXPORTS, ExportReader
from forewarn.features.telemetry.failure_evidence import TICKETS
from forewarn.features.time_units import SECOND
from forewarn.pipelines.runtime.clock import MAX_CLOCK_SKEW, SystemClock
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.records.text_tables import SPREADSHEET_NUMBER, read_text_rows

__all__ = ["Tickets", "read_tickets"]

_REQUIRED = ("gpu_serial", "failed_at")
_EXPORT = ExportReader(TICKET_EXPORTS, ("gpu_serial",))
_MAX_SHOWN_ROWS = 10
# Seconds since 1970 have 10 digits from 2001 to 2286, and 9 digits from 1973.
_EPOCH_SECONDS = r"\d{9,10}(?:\.\d{1,9})?"
_EPOCH_MILLISECONDS = r"\d{12,13}"


@dataclass(frozen=True, slots=True)
class Tickets:
    """The tickets of a file.

    Attributes
    ----------
    path : Path
    table : pyarrow.Table
        TICKETS: the valid rows.
    refused : tuple of str
        A message for each other row: its number, the value and what was expected.
    n_future : int
        Number of tickets dropped because their failure is in the future.
    note : str
        How an export of another system was understood.
    """

    path: Path
    table: pa.Table
    refused: tuple[str, ...] = ()
    n_future: int = 0
    note: str = ""

    def notes(self) -> Iterator[str]:
        """Yield how the file was understood, the first rejected rows, and how many were dropped."""
        if self.note:
            yield f"{self.path}: {self.note}"
        if self.refused:
            rows = len(self.refused) + self.n_future + len(self.table)
            yield f"{self.path}: {len(self.refused)} of {rows} tickets rejected"
        for line in self.refused[:_MAX_SHOWN_ROWS]:
            yield f"{self.path}: {line}"
        if len(self.refused) > _MAX_SHOWN_ROWS:
            yield f"{self.path}: {len(self.refused) - _MAX_SHOWN_ROWS} more rejected rows"
        if self.n_future:
            yield f"{self.path}: {self.n_future} tickets in the future dropped"


def read_tickets(path: Path, export: ExportReader = _EXPORT) -> Tickets:
    """Read repair tickets: `gpu_serial, failed_at`, optionally `repaired_at, cause, known_at`.

    Invalid rows are rejected separately.

    Parameters
    ----------
    path : Path
    export : ExportReader, optional
        Finds these columns if the file has other names for them.

    Raises
    ------
    RecordsError
        If the file cannot be read, lacks a column, or has no valid row.
    """
    rows = read_text_rows(path, export)
    for name in _REQUIRED:
        if name not in rows.table.column_names:
            header = ", ".join(rows.table.column_names)
            raise RecordsError(
                f"{path}: column `{name}` is missing, found {header}. Name it in the "
                f'configuration: `[tickets] columns = {{{name} = "..."}}`.'
            )
    tickets, refused = list[_Ticket](), dict(rows.ragged)
    for number, row in zip(rows.numbers, rows.table.to_pylist(), strict=True):
        if any(row.values()):
            try:
                tickets.append(_ticket(row))
            except ValueError as error:
                refused[number] = str(error)
    lines = tuple(f"row {number}: {refused[number]}" for number in sorted(refused))
    if lines and not tickets:
        raise RecordsError(f"{path}: {lines[0]} (none of its {len(lines)} tickets is valid).")
    latest = SystemClock().now() + MAX_CLOCK_SKEW
    past = [ticket._asdict() for ticket in tickets if ticket.failed_at <= latest]
    table = pa.Table.from_pylist(past, schema=TICKETS)
    return Tickets(path, table, lines, len(tickets) - len(past), rows.note)


class _Ticket(NamedTuple):
    """A row of TICKETS, times in nanoseconds."""

    gpu_serial: str
    failed_at: int
    repaired_at: int | None
    cause: str | None
    known_at: int | None


def _ticket(row: Mapping[str, str | None]) -> _Ticket:
    """Return the ticket of a row.

    Raises
    ------
    ValueError
        If the row is invalid; the message gives the reason.
    """
    serial = row["gpu_serial"] or ""
    failed, repaired, known = (
        _moment(name, row.get(name)) for name in ("failed_at", "repaired_at", "known_at")
    )
    if not serial or failed is None:
        name = "failed_at" if serial else "gpu_serial"
        raise ValueError(f"column `{name}` is empty, expected a value")
    if re.search(SPREADSHEET_NUMBER, serial):
        raise ValueError(
            f"column `gpu_serial` holds {serial[:40]!r}, expected the serial as text: as a number "
            "it loses digits"
        )
    if repaired is not None and repaired < failed:
        raise ValueError(
            f"column `repaired_at` holds {row['repaired_at']!r}, expected no time before that of "
            f"`failed_at`, {row['failed_at']!r}"
        )
    return _Ticket(serial, failed, repaired, row.get("cause"), known)


def _moment(name: str, text: str | None) -> int | None:
    """Return a time in nanoseconds: ISO 8601, or seconds or milliseconds since 1970.

    Ambiguous formats such as 11/12/2026 are rejected.
    """
    if text is None:
        return None
    if re.fullmatch(_EPOCH_SECONDS, text, re.ASCII):
        return int(Decimal(text) * SECOND)
    if re.fullmatch(_EPOCH_MILLISECONDS, text, re.ASCII):
        return int(text) * 10**6
    try:
        return parse_moment(text)
    except (ValueError, OverflowError):
        raise ValueError(
            f"column `{name}` holds {text[:40]!r}, expected a time such as 2025-03-01T06:00:00Z, "
            "or seconds since 1970"
        ) from None
