"""Lookup of known findings by key."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Row,
    Text,
    and_,
    bindparam,
    func,
    select,
)

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.chunks import chunks
from forewarn.pipelines.incidents.ledger.finding_rows import read_findings
from forewarn.pipelines.incidents.ledger.ledger_tables import findings as table
from forewarn.pipelines.incidents.ledger.ledger_tables import incident_findings, incident_states
from forewarn.response.grouping.finding_deduplication import FindingStatement, KnownFinding
from forewarn.response.state.finding import Finding, FindingKey

__all__ = ["known_findings"]

_COLUMNS = [column for column in table.c if column.name != "evidence"]
Name = tuple[str, str]
"""(id, machine)."""


def known_findings(
    connection: Connection, keys: Iterable[FindingKey]
) -> tuple[dict[FindingKey, KnownFinding], set[FindingStatement]]:
    """Return the newest known finding of each key, and the unreadable ones."""
    by_source: dict[str, dict[Name, None]] = defaultdict(dict)
    for key in keys:
        by_source[key.source][key.id, key.machine] = None
    newest: dict[FindingKey, tuple[int, Finding]] = {}
    unreadable = set[FindingStatement]()
    for source, names in by_source.items():
        for chunk in chunks(list(names)):
            rows = _rows(connection, source, chunk)
            read = dict[int, Finding]()
            for row, finding in read_findings(connection, rows):
                newest[finding.key] = (row.id, finding)
                read[row.id] = finding
            unreadable |= {_statement(row) for row in rows if row.id not in read}
    ends = _last_ends(connection, [number for number, _ in newest.values()])
    known = {
        key: KnownFinding(number, finding, ends.get(number, finding.at))
        for key, (number, finding) in newest.items()
    }
    return known, unreadable


def _statement(row: Row[Any]) -> FindingStatement:
    return FindingKey(row.source, row.machine, row.key, row.vouched), row.at


def _rows(connection: Connection, source: str, names: Sequence[Name]) -> Sequence[Row[Any]]:
    """Return the rows with some names of a source, oldest first."""
    # A list of pairs would scan all rows of the source; joining a table uses the index.
    keys, machines = (list(column) for column in zip(*names, strict=True))
    if connection.dialect.name == "sqlite":
        pairs = func.json_each(json.dumps(names)).table_valued("value", name="names")
        paths = ("$[0]", "$[1]")
        pair: list[ColumnElement[str]] = [func.json_extract(pairs.c.value, p) for p in paths]
    else:
        arrays = [bindparam(None, column, type_=ARRAY(Text)) for column in (keys, machines)]
        pairs = func.unnest(*arrays).table_valued("key", "machine").render_derived(name="names")
        pair = [pairs.c.key, pairs.c.machine]
    same = and_(table.c.source == source, table.c.key == pair[0], table.c.machine == pair[1])
    query = select(*_COLUMNS).select_from(pairs).join(table, same).order_by(table.c.id)
    return connection.execute(query).all()


def _last_ends(connection: Connection, rows: Sequence[int]) -> dict[int, Nanoseconds | None]:
    """Return the end of the last incident of each finding; None while one is open."""
    ends: dict[int, Nanoseconds | None] = {}
    member, state = incident_findings.c, incident_states.c
    ended_at = func.min(state.at).label("ended_at")
    for chunk in chunks(rows):
        query = (
            select(member.finding, member.incident, ended_at)
            .join(incident_states, state.incident == member.incident, isouter=True)
            .where(member.finding.in_(chunk))
            .group_by(member.finding, member.incident)
        )
        for finding, _, end in connection.execute(query):
            if end is None or ends.get(finding, end) is None:
                ends[finding] = None
            elif isinstance(
                end, int
            ):  # otherwise the state is unreadable and quarantined elsewhere
                ends[finding] = Nanoseconds(max(end, ends.get(finding) or 0))
    return ends
