"""Service log: states of machines with open incidents, one row per change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from sqlalchemy import Row, insert, select

from forewarn.features.time_units import Nanoseconds
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
    with ledger.database.writing() as connection:
        for machine in machines:
            seen = (not machine.impaired, bool(machine.jobs))
            query = select(services).where(services.c.machine == machine.name)
            last = connection.execute(query.order_by(services.c.at.desc()).limit(1)).first()
            if last is not None and _is_unchanged(last, seen, now, gap=gap):
                continue
            row = {"machine": machine.name, "at": now, "before": now if before is None else before}
            connection.execute(insert(services).values(**row, in_service=seen[0], busy=seen[1]))


def _is_unchanged(last: Row[Any], seen: tuple[bool, bool], now: Nanoseconds, *, gap: bool) -> bool:
    """Tell whether a machine's state equals the last row, which may be damaged."""
    if not isinstance(last.at, int):
        return False
    return last.at >= now or (not gap and seen == (last.in_service, last.busy))


def read_service(ledger: Ledger, machine: str, *, until: Nanoseconds) -> list[ServiceSpan]:
    """Return the service spans of a machine, oldest first; unobserved time is in no span.

    Parameters
    ----------
    ledger : Ledger
    machine : str
    until : int
        Time of the last observation, nanoseconds since 1970 UTC.
    """
    query = select(services).where(services.c.machine == machine).order_by(services.c.at)
    with ledger.database.reading() as connection:
        selected = connection.execute(query).all()
        rows = [row for row, _ in iter_readable(connection, services, selected, tuple)]
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
    ends = {
        name: returned_to_service_at(external, read_service(ledger, name, until=now))
        for name, external in drains.items()
    }
    return {name: end for name, end in ends.items() if end is not None}
