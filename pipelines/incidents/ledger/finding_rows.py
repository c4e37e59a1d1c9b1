"""Findings as rows: what is stored of them, and how the same ones are counted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    "read_findings",
    "update_repeats",
]

MAX_NAME_BYTES = 512  # bytes; an index of PostgreSQL holds 2,700 of an entry
MAX_EVIDENCE_CHARS = 16 * 1024  # characters of JSON, which are bytes: it is ASCII
MAX_INT64 = 2**63 - 1
_REPEATED: dict[str, TypeEngine[Any]] = {
    "gpu_serial": Text(),
    "severity": Text(),
    "last": BigInteger(),
    "count": BigInteger(),
}
"""What repeats change of a finding."""


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
        if not 0 <= time < MAX_TIME:
            raise FindingError(finding, field, "is not between 1970 and 2116")
    if not 1 <= finding.count <= MAX_INT64:
        raise FindingError(finding, "count", "is not between 1 and what 64 bits hold")


def _problem(name: str) -> str | None:
    """Say why a name cannot be stored."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "holds half a character, expected text of UTF-8"
    if "\0" in name:
        return "holds a NUL character, expected text without it"
    if not 0 < size <= MAX_NAME_BYTES:
        return f"has {size} bytes, expected 1 to {MAX_NAME_BYTES}"
    return None


def update_repeats(connection: Connection, repeated: Sequence[tuple[int, Finding]]) -> None:
    """Store what repeats change of findings, by their rows; nothing else is ever updated."""
    if not repeated:
        return
    rows = [{"row": row} | _repeated_values(finding) for row, finding in repeated]
    if connection.dialect.name == "sqlite":
        new = {name: bindparam(f"new_{name}", type_=kind) for name, kind in _REPEATED.items()}
        statement = update(table).where(table.c.id == bindparam("row", type_=BigInteger))
        named = [{"row": row["row"]} | {f"new_{name}": row[name] for name in new} for row in rows]
        connection.execute(statement.values(new), named)
        return
    # PostgreSQL takes a statement for each row ten times slower than all rows as arrays.
    kinds = {"row": BigInteger()} | _REPEATED
    columns = {name: [row[name] for row in rows] for name in kinds}
    arrays: list[BindParameter[Any]] = [
        bindparam(name, type_=ARRAY(kind)) for name, kind in kinds.items()
    ]
    again = func.unnest(*arrays).table_valued(*kinds).render_derived(name="again")
    statement = update(table).where(table.c.id == again.c.row)
    connection.execute(statement.values({name: again.c[name] for name in _REPEATED}), columns)


def _repeated_values(finding: Finding) -> dict[str, Any]:
    severity = None if finding.severity is None else finding.severity.value
    values = {"gpu_serial": finding.gpu_serial, "severity": severity}
    return values | {"last": finding.last, "count": finding.count}


def add(
    connection: Connection, findings: Sequence[Finding], *, now: Nanoseconds
) -> list[int | None]:
    """Add findings; return the numbers of their rows, in order, and None of one there is already.

    One finding that a source states twice must not stop all others.
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
    } | _repeated_values(finding)


def _evidence(evidence: Mapping[str, Any]) -> str:
    """Return JSON of at most 16 KiB; what is cut says so, and how long it was."""
    text = json.dumps(evidence, separators=(",", ":"), default=str)
    if len(text) <= MAX_EVIDENCE_CHARS:
        return text
    # A quote or a backslash of the text takes two characters inside of a string.
    begin = text[: MAX_EVIDENCE_CHARS // 2 - 100]
    return json.dumps({"cut_from_bytes": len(text), "begin": begin}, separators=(",", ":"))


def read_findings(
    connection: Connection, rows: Iterable[Row[Any]]
) -> Iterator[tuple[Row[Any], Finding]]:
    """Yield rows of the table with their findings; those that cannot be read are set aside."""
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
