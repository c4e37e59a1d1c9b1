"""Service log: states of machines with open incidents, one row per change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.chunks import chunks
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import services
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.response.follow_up.outcome_assessment import ServiceSpan
from forewarn.response.follow_up.return_to_service import is_external_drain, returned_to_service_at
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine

__all__ = ["read_service", "record_service", "returned_to_service"]


def record_service(
    ledger: Ledger,
    machines: Iterable[Machine],
    *,
    before: Nanoseconds | None,
    longest: Nanoseconds,
    now: Nanoseconds,
) -> None:
    """Add a row for each machine whose state changed, or that was not observed for a while.

    Parameters
    ----------
    ledger : Ledger
    machines : iterable of Machine
        Those with open incidents.
    before : int or None
        Time of the previous observation, nanoseconds since 1970 UTC.
    longest : int
        Longest time between observations that is not a gap, in nanoseconds.
    now : int
    """
    gap = before is None or now - before > longest
    seen = {machine.name: (not machine.impaired, bool(machine.jobs)) for machine in machines}
    with ledger.database.writing() as connection:
        last = _last_rows(connection, list(seen))
        rows = [
            {"machine": name, "at": now, "before": now if before is None else before}
            | {"in_service": in_service, "busy": busy}
            for name, (in_service, busy) in seen.items()
            if name not in last or not _is_unchanged(last[name], (in_service, busy), now, gap=gap)
        ]
        if rows:
            connection.execute(insert(services), rows)


def _last_rows(connection: Connection, machines: Sequence[str]) -> dict[str, Row[Any]]:
    """Return the newest row of each machine that has any."""
    rows: dict[str, Row[Any]] = {}
    for chunk in chunks(machines):
        newest = select(services.c.machine, func.max(services.c.at).label("at"))
        newest_at = newest.where(services.c.machine.in_(chunk)).group_by(services.c.machine)
        last = newest_at.subquery()
        same = (services.c.machine == last.c.machine) & (services.c.at == last.c.at)
        selected = connection.execute(select(services).join(last, same)).all()
        rows |= {row.machine: row for row in selected}
    return rows


def _is_unchanged(last: Row[Any], seen: tuple[bool, bool], now: Nanoseconds, *, gap: bool) -> bool:
    """Tell whether a machine's state equals the last row, which may be damaged."""
    if not isinstance(last.at, int):
        return False
    return last.at >= now or (not gap and seen == (last.in_service, last.busy))


def read_service(
    ledger: Ledger, machines: Iterable[str], *, until: Nanoseconds
) -> dict[str, list[ServiceSpan]]:
    """Return the service spans of each machine, oldest first; unobserved time is in no span.

    Parameters
    ----------
    ledger : Ledger
    machines : iterable of str
    until : int
        Time of the last observation, nanoseconds since 1970 UTC.
    """
    names, rows = list(dict.fromkeys(machines)), defaultdict[str, list[Row[Any]]](list)
    with ledger.database.reading() as connection:
        for chunk in chunks(names):
            query = select(services).where(services.c.machine.in_(chunk)).order_by(services.c.at)
            selected = connection.execute(query).all()
            for row, _ in iter_readable(connection, services, selected, tuple):
                rows[row.machine].append(row)
    return {name: _spans(rows[name], until) for name in names}


def _spans(rows: Sequence[Row[Any]], until: Nanoseconds) -> list[ServiceSpan]:
    spans = [
        ServiceSpan(row.at, max(row.at, after.before), row.in_service, row.busy)
        for row, after in pairwise(rows)
    ]
    spans += [
        ServiceSpan(row.at, max(row.at, until), row.in_service, row.busy) for row in rows[-1:]
    ]
    return spans


def returned_to_service(
    ledger: Ledger, incidents: Iterable[Incident], *, now: Nanoseconds
) -> dict[str, Nanoseconds]:
    """Return when externally drained machines returned to service.

    Parameters
    ----------
    ledger : Ledger
    incidents : iterable of Incident
        Open incidents; one of them has the finding of the external drain.
    now : int
        Time of the last observation, nanoseconds since 1970 UTC.
    """
    drains = defaultdict[str, list[Finding]](list)
    for incident in incidents:
        for finding in filter(is_external_drain, incident.findings):
            drains[finding.machine].append(finding)
    service = read_service(ledger, drains, until=now)
    ends = {
        name: returned_to_service_at(external, service[name]) for name, external in drains.items()
    }
    return {name: end for name, end in ends.items() if end is not None}
