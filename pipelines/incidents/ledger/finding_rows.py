"""Findings as rows: what is stored of them, and how the same ones are counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Update,
    bindparam,
    case,
    func,
    literal,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.counted_findings import Count
from forewarn.pipelines.incidents.ledger.damaged_rows import LATEST, readable
from forewarn.pipelines.incidents.ledger.tables import findings as table
from forewarn.response.state.finding import Finding, FindingKind, Severity, Voucher

__all__ = [
    "FindingConflictError",
    "FindingError",
    "add",
    "check",
    "count_again",
    "read_findings",
    "set_severity",
]

LONGEST_NAME = 512  # bytes; an index of PostgreSQL holds 2,700 of an entry
LONGEST_EVIDENCE = 16 * 1024  # characters of JSON, which are bytes: it is ASCII
LARGEST = 2**63 - 1


class FindingError(InputError):
    """A finding that is not taken; one line that names its field.

    Attributes
    ----------
    field, why : str
    """

    def __init__(self, finding: Finding, field: str, why: str) -> None:
        super().__init__(f"`{field}` {why}")
        self.finding, self.field, self.why = finding, field, why


class FindingConflictError(FindingError):
    """A finding that says something else under a name in use."""


def check(finding: Finding) -> None:
    """Refuse what no row can hold.

    Raises
    ------
    FindingError
        If a name is empty, longer than 512 bytes or no text of UTF-8 without NUL, a time is not
        between 1970 and 2116, or the count is not between 1 and what 64 bits hold.
    """
    names = {"source": finding.source, "id": finding.id, "cause": finding.cause}
    names |= {"machine": finding.machine, "model_version": finding.model_version or "-"}
    names |= {"gpu_serial": finding.gpu_serial or "-", "job": finding.job or "-"}
    for field, name in names.items():
        if problem := _problem(name):
            raise FindingError(finding, field, problem)
    times: dict[str, int] = {"at": finding.at, "valid_until": finding.valid_until}
    times |= {"first": finding.first or 0, "last": finding.last or 0}
    for field, time in times.items():
        if not 0 <= time < LATEST:
            raise FindingError(finding, field, "is not between 1970 and 2116")
    if not 1 <= finding.count <= LARGEST:
        raise FindingError(finding, "count", "is not between 1 and what 64 bits hold")


def _problem(name: str) -> str | None:
    """Say why a name cannot be stored."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "holds half a character, expected text of UTF-8"
    if "\0" in name:
        return "holds a NUL character, expected text without it"
    if not 0 < size <= LONGEST_NAME:
        return f"has {size} bytes, expected 1 to {LONGEST_NAME}"
    return None


def count_again(connection: Connection, counts: Sequence[tuple[int, Count]]) -> None:
    """Count findings that are known; with `set_severity` the only update in the ledger."""
    if not counts:
        return
    rows = [{"row": row, "more": count.count, "newest": count.last} for row, count in counts]
    if connection.dialect.name == "sqlite":
        counted = _counted(
            bindparam("row", type_=BigInteger),
            bindparam("more", type_=BigInteger),
            bindparam("newest", type_=BigInteger),
        )
        connection.execute(counted, rows)
        return
    # PostgreSQL takes a statement for each row ten times slower than all rows as three arrays.
    columns = {name: [row[name] for row in rows] for name in ("row", "more", "newest")}
    arrays = [bindparam(name, type_=ARRAY(BigInteger)) for name in columns]
    again = func.unnest(*arrays).table_valued(*columns).render_derived(name="again")
    connection.execute(_counted(again.c.row, again.c.more, again.c.newest), columns)


def _counted(
    row: ColumnElement[int], more: ColumnElement[int], newest: ColumnElement[int]
) -> Update:
    last = case((table.c.last < newest, newest), else_=table.c.last)
    # A sum that 64 bits do not hold ends at the largest number, and no transaction.
    full = table.c.count > literal(LARGEST, BigInteger) - more
    count = case((full, literal(LARGEST, BigInteger)), else_=table.c.count + more)
    return update(table).where(table.c.id == row).values(count=count, last=last)


def set_severity(connection: Connection, row: int, severity: Severity) -> None:
    """Let the latest word of a source on how grave a finding is count."""
    statement = update(table).where(table.c.id == row).values(severity=severity.value)
    connection.execute(statement)


def add(connection: Connection, counts: Sequence[Count], *, now: Nanoseconds) -> list[int | None]:
    """Add findings; return the numbers of their rows, in order, and None of one there is already.

    One finding that a source states twice must not stop all others.
    """
    if not counts:
        return []
    is_sqlite = connection.dialect.name == "sqlite"
    statement = sqlite.insert(table) if is_sqlite else postgresql.insert(table)
    names = ("source", "key", "machine", "vouched", "at")
    added = statement.on_conflict_do_nothing().returning(
        table.c.id, *(table.c[name] for name in names)
    )
    values = [_values(count, now) for count in counts]
    rows = {tuple(row[1:]): int(row.id) for row in connection.execute(added, values)}
    return [rows.pop(tuple(value[name] for name in names), None) for value in values]


def _values(count: Count, now: Nanoseconds) -> dict[str, Any]:
    finding = count.finding
    return {
        "source": finding.source,
        "key": finding.id,
        "kind": finding.kind.value,
        "cause": finding.cause,
        "machine": finding.machine,
        "gpu_serial": finding.gpu_serial,
        "job": finding.job,
        "at": finding.at,
        "valid_until": finding.valid_until,
        "severity": None if count.severity is None else count.severity.value,
        "vouched": finding.vouched.value,
        "evidence": _evidence(finding.evidence),
        "model_version": finding.model_version,
        "first": finding.at if finding.first is None else finding.first,
        "last": count.last,
        "count": count.count,
        "taken_at": now,
    }


def _evidence(evidence: Mapping[str, Any]) -> str:
    """Return JSON of at most 16 KiB; what is cut says so, and how long it was."""
    text = json.dumps(evidence, separators=(",", ":"), default=str)
    if len(text) <= LONGEST_EVIDENCE:
        return text
    # A quote or a backslash of the text takes two characters inside of a string.
    begin = text[: LONGEST_EVIDENCE // 2 - 100]
    return json.dumps({"cut_from_bytes": len(text), "begin": begin}, separators=(",", ":"))


def read_findings(
    connection: Connection, rows: Iterable[Row[Any]]
) -> Iterator[tuple[Row[Any], Finding]]:
    """Yield rows of the table with their findings; those that cannot be read are set aside."""
    return readable(connection, table, rows, _finding_of)


def _finding_of(row: Any) -> Finding:
    return Finding(
        source=row.source,
        id=row.key,
        kind=FindingKind(row.kind),
        cause=row.cause,
        machine=row.machine,
        at=row.at,
        valid_until=row.valid_until,
        gpu_serial=row.gpu_serial,
        job=row.job,
        severity=None if row.severity is None else Severity(row.severity),
        evidence=_parsed(getattr(row, "evidence", "{}")),
        model_version=row.model_version,
        first=row.first,
        last=row.last,
        count=row.count,
        vouched=Voucher(row.vouched),
    )


def _parsed(text: str) -> dict[str, Any]:
    """Return what evidence says; half a character is U+FFFD, as no JSON can hold it.

    Raises
    ------
    ValueError
        If it is no object of JSON.
    """
    evidence = json.loads(text)
    if "\\ud" in text.lower():
        whole = json.dumps(evidence, ensure_ascii=False).encode("utf-16", "surrogatepass")
        evidence = json.loads(whole.decode("utf-16", "replace"))
    if not isinstance(evidence, dict):
        raise ValueError(f"`evidence` is {text[:60]!r}, expected an object")
    return evidence
