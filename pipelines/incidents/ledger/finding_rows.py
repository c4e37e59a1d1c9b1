"""Rows of findings: what is stored, and how repeats are counted."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    BindParameter,
    Connection,
    Row,
    Text,
    bindparam,
    func,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger_tables import findings as table
from forewarn.pipelines.incidents.ledger.quarantined_rows import MAX_TIME, iter_readable
from forewarn.response.state.finding import Finding, FindingKind, Provenance, Severity

__all__ = [
    "FindingConflictError",
    "FindingError",
    "add",
    "check",
    "first_times_of_jobs",
    "read_findings",
    "reported_within",
    "update_repeats",
]

MAX_NAME_BYTES = 512  # a PostgreSQL index entry holds 2,700 bytes
MAX_EVIDENCE_CHARS = 16 * 1024  # ASCII JSON: one byte per character
MAX_INT64 = 2**63 - 1
_REPEAT_COLUMNS: dict[str, TypeEngine[Any]] = {
    "gpu_serial": Text(),
    "severity": Text(),
    "last": BigInteger(),
    "count": BigInteger(),
    "valid_until": BigInteger(),
}
"""Columns that a repeat updates."""


class FindingError(InputError):
    """A finding is refused; one line that names the field.

    Attributes
    ----------
    field, why : str
    """

    def __init__(self, finding: Finding, field: str, why: str) -> None:
        super().__init__(f"`{field}` {why}")
        self.finding, self.field, self.why = finding, field, why


class FindingConflictError(FindingError):
    """A finding contradicts a known one with the same key."""


def check(finding: Finding) -> None:
    """Check that a row can hold a finding.

    Raises
    ------
    FindingError
        If a name is empty, longer than 512 bytes, not UTF-8 or contains NUL; a time is not between
        1970 and 2116; or the count does not fit into 64 bits or is below 1.
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
        if not 0 <= time < MAX_TIME:
            raise FindingError(finding, field, "is not between 1970 and 2116")
    is_end = finding.count == 0 and finding.valid_until <= finding.at  # never stored as a row
    if not 1 <= finding.count <= MAX_INT64 and not is_end:
        raise FindingError(finding, "count", "is not between 1 and 2^63 - 1")


def _problem(name: str) -> str | None:
    """Return why a name cannot be stored, or None."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "has a lone surrogate, expected UTF-8 text"
    if "\0" in name:
        return "has a NUL character, expected text without it"
    if not 0 < size <= MAX_NAME_BYTES:
        return f"has {size} bytes, expected 1 to {MAX_NAME_BYTES}"
    return None


def update_repeats(connection: Connection, repeated: Sequence[tuple[int, Finding]]) -> None:
    """Update the columns that repeats change, by row; no other update exists."""
    if not repeated:
        return
    rows = [{"row": row} | _repeat_values(finding) for row, finding in repeated]
    if connection.dialect.name == "sqlite":
        new = {name: bindparam(f"new_{name}", type_=kind) for name, kind in _REPEAT_COLUMNS.items()}
        statement = update(table).where(table.c.id == bindparam("row", type_=BigInteger))
        parameters = [
            {"row": row["row"]} | {f"new_{name}": row[name] for name in new} for row in rows
        ]
        connection.execute(statement.values(new), parameters)
        return
    # In PostgreSQL one statement with arrays is ten times faster than one statement per row.
    kinds = {"row": BigInteger()} | _REPEAT_COLUMNS
    columns = {name: [row[name] for row in rows] for name in kinds}
    arrays: list[BindParameter[Any]] = [
        bindparam(name, type_=ARRAY(kind)) for name, kind in kinds.items()
    ]
    repeats = func.unnest(*arrays).table_valued(*kinds).render_derived(name="repeats")
    statement = update(table).where(table.c.id == repeats.c.row)
    connection.execute(
        statement.values({name: repeats.c[name] for name in _REPEAT_COLUMNS}), columns
    )


def _repeat_values(finding: Finding) -> dict[str, Any]:
    return {
        "gpu_serial": finding.gpu_serial,
        "severity": None if finding.severity is None else finding.severity.value,
        "last": finding.last,
        "count": finding.count,
        "valid_until": finding.valid_until,
    }


def add(
    connection: Connection, findings: Sequence[Finding], *, now: Nanoseconds
) -> list[int | None]:
    """Add findings; return their row numbers in order, None for rows that exist already.

    A finding that a source reports twice must not prevent the others.
    """
    if not findings:
        return []
    is_sqlite = connection.dialect.name == "sqlite"
    statement = sqlite.insert(table) if is_sqlite else postgresql.insert(table)
    names = ("source", "key", "machine", "vouched", "at")
    added = statement.on_conflict_do_nothing().returning(
        table.c.id, *(table.c[name] for name in names)
    )
    values = [_values(finding, now) for finding in findings]
    rows = {tuple(row[1:]): int(row.id) for row in connection.execute(added, values)}
    return [rows.pop(tuple(value[name] for name in names), None) for value in values]


def _values(finding: Finding, now: Nanoseconds) -> dict[str, Any]:
    return {
        "source": finding.source,
        "key": finding.id,
        "kind": finding.kind.value,
        "cause": finding.cause,
        "machine": finding.machine,
        "job": finding.job,
        "at": finding.at,
        "valid_until": finding.valid_until,
        "vouched": finding.vouched.value,
        "evidence": _evidence(finding.evidence),
        "model_version": finding.model_version,
        "first": finding.first,
        "taken_at": now,
    } | _repeat_values(finding)


def _evidence(evidence: Mapping[str, Any]) -> str:
    """Return JSON of at most 16 KiB; truncated evidence says so and gives its original length."""
    text = json.dumps(evidence, separators=(",", ":"), default=str)
    if len(text) <= MAX_EVIDENCE_CHARS:
        return text
    # A quote or backslash takes two characters inside a string.
    begin = text[: MAX_EVIDENCE_CHARS // 2 - 100]
    return json.dumps({"cut_from_bytes": len(text), "begin": begin}, separators=(",", ":"))


def first_times_of_jobs(connection: Connection, jobs: Collection[str]) -> list[Nanoseconds]:
    """Return when the findings about jobs were first reported, in order of time."""
    times = select(table.c.first).where(table.c.job.in_(jobs)).order_by(table.c.first)
    return [Nanoseconds(time) for time in connection.scalars(times)]


def reported_within(
    connection: Connection, machines: Collection[str], begin: int, end: int
) -> list[Finding]:
    """Return the findings about machines with a report in [begin, end], oldest first."""
    query = select(table).where(
        table.c.machine.in_(machines), table.c.first <= end, table.c.last >= begin
    )
    rows = connection.execute(query.order_by(table.c.first, table.c.id)).all()
    return [finding for _, finding in read_findings(connection, rows)]


def read_findings(
    connection: Connection, rows: Iterable[Row[Any]]
) -> Iterator[tuple[Row[Any], Finding]]:
    """Yield readable rows of the table with their findings."""
    return iter_readable(connection, table, rows, _parse_finding)


def _parse_finding(row: Any) -> Finding:
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
        vouched=Provenance(row.vouched),
    )


def _parsed(text: str) -> dict[str, Any]:
    """Parse evidence; lone surrogates become U+FFFD, because JSON cannot hold them.

    Raises
    ------
    ValueError
        If it is not a JSON object.
    """
    evidence = json.loads(text)
    if "\\ud" in text.lower():
        full = json.dumps(evidence, ensure_ascii=False).encode("utf-16", "surrogatepass")
        evidence = json.loads(full.decode("utf-16", "replace"))
    if not isinstance(evidence, dict):
        raise ValueError(f"`evidence` is {text[:60]!r}, expected an object")
    return evidence
