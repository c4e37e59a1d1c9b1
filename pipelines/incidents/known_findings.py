"""Which findings a ledger knows already, by their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    Connection,
    Row,
    Text,
    and_,
    bindparam,
    func,
    select,
    tuple_,
)

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.chunks import chunks
from forewarn.pipelines.incidents.counted_findings import KnownFinding
from forewarn.pipelines.incidents.finding_rows import read_findings
from forewarn.pipelines.incidents.tables import findings as table
from forewarn.pipelines.incidents.tables import incident_findings, incident_states
from forewarn.response.finding import FindingKey

__all__ = ["known_findings"]

_COLUMNS = [column for column in table.c if column.name != "evidence"]
Name = tuple[str, str]
"""(id, machine)."""


def known_findings(
    connection: Connection, keys: Iterable[FindingKey]
) -> dict[FindingKey, KnownFinding]:
    """Return the newest finding of each key that there is already."""
    by_source: dict[str, dict[Name, None]] = defaultdict(dict)
    for key in keys:
        by_source[key.source][key.id, key.machine] = None
    newest = {
        finding.key: (row.id, finding)
        for source, names in by_source.items()
        for chunk in chunks(list(names))
        for row, finding in read_findings(connection, _rows(connection, source, chunk))
    }
    ends = _ends(connection, [number for number, _ in newest.values()])
    return {
        key: KnownFinding(number, finding, ends.get(number, finding.at))
        for key, (number, finding) in newest.items()
    }


def _rows(connection: Connection, source: str, names: Sequence[Name]) -> Sequence[Row[Any]]:
    """Return the rows of some names of a source, oldest first."""
    query = select(*_COLUMNS).where(table.c.source == source).order_by(table.c.id)
    if connection.dialect.name == "sqlite":
        query = query.where(tuple_(table.c.key, table.c.machine).in_(names))
    else:  # by the index, also before PostgreSQL knows how many rows there are
        columns = list(zip(*names, strict=True))
        arrays = [
            bindparam(name, list(column), type_=ARRAY(Text))
            for name, column in zip(("keys", "machines"), columns, strict=True)
        ]
        name = func.unnest(*arrays).table_valued("key", "machine").render_derived(name="names")
        same = and_(name.c.key == table.c.key, name.c.machine == table.c.machine)
        query = query.join(name, same)
    return connection.execute(query).all()


def _ends(connection: Connection, rows: Sequence[int]) -> dict[int, Nanoseconds | None]:
    """Return when the last incident of each finding ended; None of one that is open."""
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
            elif isinstance(end, int):  # else the state cannot be read, and is set aside elsewhere
                ends[finding] = Nanoseconds(max(end, ends.get(finding) or 0))
    return ends
