"""Findings as rows: what is stored of them, and how the same ones are counted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Text,
    Update,
    bindparam,
    case,
    func,
    insert,
    select,
    update,
)

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.chunks import chunks
from forewarn.pipelines.incidents.tables import findings as table
from forewarn.response.finding import Finding, FindingKind, Severity

__all__ = ["Count", "FindingError", "add", "check", "count_again", "finding_of", "known", "merged"]

Key = tuple[str, str]
"""(source, id): what makes two findings the same."""

LONGEST_NAME = 512  # bytes; an index of PostgreSQL holds 2,700 of an entry
LONGEST_EVIDENCE = 16 * 1024  # characters of JSON, which are bytes: it is ASCII
LARGEST = 2**63 - 1


class FindingError(InputError):
    """A finding that no row can hold; one line that names its place and the field."""


class Count:
    """A finding with all its repeats in one call.

    Attributes
    ----------
    finding : Finding
        As it was said first.
    count : int
        How often it was said.
    last : int
        When it was said last, nanoseconds since 1970 UTC.
    """

    __slots__ = ("count", "finding", "last")

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        self.count = 0
        self.last = finding.at


def merged(findings: Iterable[Finding]) -> dict[Key, Count]:
    """Return findings without their repeats, in order."""
    counts: dict[Key, Count] = {}
    for finding in findings:
        key = (finding.source, finding.id)
        count = counts.get(key)
        if count is None:
            count = counts[key] = Count(finding)
        count.count += finding.count
        count.last = max(count.last, finding.at if finding.last is None else finding.last)
    return counts


def check(findings: Sequence[Finding]) -> None:
    """Refuse what no row can hold.

    Raises
    ------
    FindingError
        If a name is empty, longer than 512 bytes or no text of UTF-8 without NUL, or a number has
        more than 64 bits.
    """
    for index, finding in enumerate(findings):
        names = {"source": finding.source, "id": finding.id, "cause": finding.cause}
        names |= {"machine": finding.machine, "model_version": finding.model_version or "-"}
        names |= {"gpu_serial": finding.gpu_serial or "-", "job": finding.job or "-"}
        for field, name in names.items():
            if problem := _problem(name):
                raise FindingError(f"finding {index}: `{field}` {problem}")
        numbers = {"at": finding.at, "valid_until": finding.valid_until, "count": finding.count}
        numbers |= {"first": finding.first or 0, "last": finding.last or 0}
        for field, number in numbers.items():
            if not -LARGEST <= number <= LARGEST:
                raise FindingError(f"finding {index}: `{field}` has more than 64 bits")


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


def known(connection: Connection, keys: Iterable[Key]) -> dict[Key, int]:
    """Return the number of the row of each finding that there is already."""
    by_source: dict[str, list[str]] = defaultdict(list)
    for source, key in keys:
        by_source[source].append(key)
    rows: dict[Key, int] = {}
    for source, names in by_source.items():
        for chunk in chunks(names):
            query = select(table.c.key, table.c.id).where(table.c.source == source)
            if connection.dialect.name == "sqlite":
                query = query.where(table.c.key.in_(chunk))
            else:  # by the index, also before PostgreSQL knows how many rows there are
                array = bindparam("names", list(chunk), type_=ARRAY(Text))
                name = func.unnest(array).table_valued("name").render_derived()
                query = query.join(name, name.c.name == table.c.key)
            rows |= {(source, key): number for key, number in connection.execute(query)}
    return rows


def count_again(connection: Connection, counts: Sequence[tuple[int, Count]]) -> None:
    """Count findings that are known; the only update in the ledger."""
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
    return update(table).where(table.c.id == row).values(count=table.c.count + more, last=last)


def add(connection: Connection, counts: Sequence[Count], *, now: Nanoseconds) -> list[int]:
    """Add findings; return the numbers of their rows, in order."""
    if not counts:
        return []
    statement = insert(table).returning(table.c.id, sort_by_parameter_order=True)
    return list(connection.scalars(statement, [_values(count, now) for count in counts]))


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
        "severity": None if finding.severity is None else finding.severity.value,
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


def finding_of(row: Any) -> Finding:
    """Return the finding of a row of its table."""
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
        evidence=json.loads(row.evidence),
        model_version=row.model_version,
        first=row.first,
        last=row.last,
        count=row.count,
    )
