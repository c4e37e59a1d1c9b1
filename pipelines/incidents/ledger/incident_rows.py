"""Rows of incidents: opening, sharing, ending, and loading with all related rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    bindparam,
    func,
    insert,
    or_,
    select,
)

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger import action_rows, decision_rows
from forewarn.pipelines.incidents.ledger.chunks import chunks
from forewarn.pipelines.incidents.ledger.finding_rows import read_findings
from forewarn.pipelines.incidents.ledger.ledger_tables import (
    acknowledgements,
    findings,
    incident_findings,
    incident_states,
    incidents,
    newest_rows,
    outcomes,
)
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.response.grouping.gpu_incidents import group_findings, resolve_gpu_serial
from forewarn.response.state.finding import MANUAL_CAUSE, Finding, Provenance
from forewarn.response.state.incident import Incident, IncidentState, Outcome

__all__ = [
    "assign_incidents",
    "end_incident",
    "incident_state",
    "is_open",
    "join",
    "list_incident_ids",
    "load",
    "newest_values",
    "opened_since",
    "share",
    "states_of",
]

Value = TypeVar("Value")
MAX_FINDINGS_READ = 1_000
"""Findings read per incident and provenance, and of people; more would exhaust the memory.

The separate counts ensure that a flood from a shared token displaces no finding of a host or of a
person.
"""


def is_open() -> ColumnElement[bool]:
    """Return the condition for open incidents; an ended one never reopens."""
    ended = select(incident_states.c.id).where(incident_states.c.incident == incidents.c.id)
    return ~ended.correlate(incidents).exists()


def list_incident_ids(
    connection: Connection,
    *,
    state: IncidentState | None,
    machine: str | None,
    before: int | None,
    limit: int,
) -> list[int]:
    """Return the numbers of incidents, newest first."""
    query = select(incidents.c.id)
    if state is not None:
        query = query.where(_state() == state.value)
    if machine is not None:
        query = query.where(_has_machine(machine))
    if before is not None:
        query = query.where(incidents.c.id < before)
    return list(connection.scalars(query.order_by(incidents.c.id.desc()).limit(limit)))


def opened_since(connection: Connection, since: Nanoseconds) -> list[int]:
    """Return the numbers of incidents opened since a time, newest first."""
    query = select(incidents.c.id).where(incidents.c.opened_at >= since)
    return list(connection.scalars(query.order_by(incidents.c.id.desc())))


def _state() -> ColumnElement[str]:
    query = select(incident_states.c.state).where(incident_states.c.incident == incidents.c.id)
    newest = query.order_by(incident_states.c.id.desc()).limit(1)
    return func.coalesce(newest.correlate(incidents).scalar_subquery(), IncidentState.OPEN.value)


def _has_machine(machine: str) -> ColumnElement[bool]:
    """Return the condition for incidents of a machine, including shared ones with its findings."""
    own = incidents.c.machine == machine
    shared = (
        select(incident_findings.c.incident)
        .join(findings, findings.c.id == incident_findings.c.finding)
        .where(findings.c.machine == machine)
    )
    return or_(own, (incidents.c.shared != "") & incidents.c.id.in_(shared))


def assign_incidents(
    connection: Connection, new: Sequence[Finding], *, now: Nanoseconds
) -> list[int]:
    """Return the open incident of each new finding; open incidents where there are none."""
    existing = [
        Incident(row.id, row.machine, row.gpu_serial, row.opened_at, findings=tuple(members))
        for row, members in _open_of_machines(connection, {finding.machine for finding in new})
    ]
    grouping = group_findings(new, existing)
    opened = list[int]()
    if grouping.opened:
        statement = insert(incidents).returning(incidents.c.id, sort_by_parameter_order=True)
        values = [_new_row(f.machine, f.gpu_serial, f.source, now=now) for f in grouping.opened]
        opened += connection.scalars(statement, values)
    return [number if number > 0 else opened[-number - 1] for number in grouping.incidents]


def _open_of_machines(
    connection: Connection, machines: Iterable[str]
) -> Iterator[tuple[Row[Any], list[Finding]]]:
    """Yield the open incidents of some machines with their findings, without shared incidents."""
    for chunk in chunks(sorted(machines)):
        query = select(incidents).where(incidents.c.machine.in_(chunk), incidents.c.shared == "")
        rows = connection.execute(query.where(is_open())).all()
        members = _findings(connection, [row.id for row in rows])
        yield from ((row, members.get(row.id, [])) for row in rows)


def _new_row(
    machine: str, gpu_serial: str | None, who: str, *, now: Nanoseconds, shared: str = ""
) -> dict[str, str | int | None]:
    return {
        "machine": machine,
        "gpu_serial": gpu_serial,
        "shared": shared,
        "opened_at": now,
        "who": who,
    }


def join(connection: Connection, members: Sequence[tuple[int, int]], *, now: Nanoseconds) -> None:
    """Add (incident, finding) pairs."""
    if members:
        values = [{"incident": incident, "finding": row, "at": now} for incident, row in members]
        connection.execute(insert(incident_findings), values)


def share(
    connection: Connection,
    numbers: Sequence[int],
    *,
    shared: str,
    machine: str,
    now: Nanoseconds,
    why: str,
) -> int:
    """Add the findings of incidents to a shared one, and close the incidents as parts of it."""
    common = (incidents.c.shared == shared) & (incidents.c.shared != "")
    existing = select(incidents.c.id).where(common, is_open()).limit(1)
    target: int | None = connection.scalar(existing)
    if target is None:
        values = _new_row(machine, None, "forewarn", now=now, shared=shared)
        target = connection.scalars(
            insert(incidents).values(**values).returning(incidents.c.id)
        ).one()
    parts = [number for number in dict.fromkeys(numbers) if number != target]
    members = set[int]()
    for chunk in chunks(parts):
        query = select(incident_findings.c.finding).where(incident_findings.c.incident.in_(chunk))
        members |= set(connection.scalars(query))
    present = select(incident_findings.c.finding).where(incident_findings.c.incident == target)
    members -= set(connection.scalars(present))
    join(connection, [(target, finding) for finding in sorted(members)], now=now)
    for part in parts:
        reason = f"part of incident {target}: {why}"
        end_incident(connection, part, IncidentState.CLOSED, now=now, who="forewarn", why=reason)
    return target


def incident_state(connection: Connection, number: int) -> IncidentState:
    """Return the current state of an incident."""
    return states_of(connection, [number]).get(number, IncidentState.OPEN)


def states_of(connection: Connection, numbers: Sequence[int]) -> dict[int, IncidentState]:
    """Return the states of the incidents that have ended; an unreadable state counts as closed."""

    def state(row: Row[Any]) -> IncidentState:
        return IncidentState(row.state)

    return newest_values(connection, incident_states, state, numbers, IncidentState.CLOSED)


def end_incident(
    connection: Connection,
    number: int,
    state: IncidentState,
    *,
    now: Nanoseconds,
    who: str,
    why: str,
) -> None:
    """End an incident; nothing is added if it is in that state already.

    Raises
    ------
    ValueError
        If an ended incident is to be reopened.
    """
    current = incident_state(connection, number)
    if current is state:
        return
    if state is IncidentState.OPEN:
        raise ValueError(f"incident {number} is {current} and cannot be reopened")
    values = {"incident": number, "state": state.value, "at": now, "who": who, "why": why}
    values |= decision_rows.decision_versions(connection, number)
    connection.execute(insert(incident_states).values(**values))


def load(connection: Connection, numbers: Sequence[int]) -> list[Incident]:
    """Return incidents with findings, decision, actions and outcome, in the given order."""
    rows: dict[int, Row[Any]] = {}
    for chunk in chunks(numbers):
        query = select(incidents).where(incidents.c.id.in_(chunk))
        selected = connection.execute(query).all()
        rows |= {row.id: row for row, _ in iter_readable(connection, incidents, selected, tuple)}
    known = [number for number in numbers if number in rows]
    machines = _machines(connection, rows.values())
    members = _findings(connection, known)
    decisions = decision_rows.last_decisions(connection, known)
    actions = action_rows.actions_by_incident(connection, known)
    states = states_of(connection, known)
    results = newest_values(connection, outcomes, lambda row: Outcome(row.outcome), known, None)
    acknowledged = _acknowledged(connection, known)
    return [
        Incident(
            id=number,
            machine=rows[number].machine,
            gpu_serial=_gpu_serial(rows[number], members.get(number, ())),
            opened_at=rows[number].opened_at,
            state=states.get(number, IncidentState.OPEN),
            shared=rows[number].shared,
            machines=machines[number],
            findings=tuple(members.get(number, ())),
            decision=decisions.get(number),
            actions=actions.get(number, ()),
            outcome=results.get(number),
            acknowledged=number in acknowledged,
        )
        for number in known
    ]


def _gpu_serial(row: Row[Any], members: Iterable[Finding]) -> str | None:
    return None if row.shared else resolve_gpu_serial(row.gpu_serial, members)


def _machines(connection: Connection, rows: Iterable[Row[Any]]) -> dict[int, tuple[str, ...]]:
    """Return the machines of each incident in order of their first finding."""
    rows = list(rows)
    names = {row.id: [row.machine] for row in rows}
    for chunk in chunks([row.id for row in rows if row.shared]):
        query = (
            select(incident_findings.c.incident, findings.c.machine)
            .join(findings, findings.c.id == incident_findings.c.finding)
            .where(incident_findings.c.incident.in_(chunk))
            .group_by(incident_findings.c.incident, findings.c.machine)
            .order_by(func.min(findings.c.at), func.min(findings.c.id))
        )
        for incident, machine in connection.execute(query):
            names[incident] += [machine] if isinstance(machine, str) else []
    return {number: tuple(dict.fromkeys(machines)) for number, machines in names.items()}


def _findings(connection: Connection, numbers: Sequence[int]) -> dict[int, list[Finding]]:
    """Return the newest findings of each incident, newest last."""
    members: dict[int, list[Finding]] = defaultdict(list)
    for chunk in chunks(numbers):
        rows = connection.execute(
            _newest_findings(), {"incidents": list(chunk), "most": MAX_FINDINGS_READ}
        ).all()
        for row, finding in read_findings(connection, rows):
            members[row.incident].append(finding)
    return members


@cache  # to build it takes longer than to run it
def _newest_findings() -> Select[Any]:
    """Return the statement for the newest findings of some `incidents`, `most` of each kind."""
    newest_first = (findings.c.at.desc(), findings.c.id.desc())
    owners = (findings.c.vouched == Provenance.SHARED.value, findings.c.cause == MANUAL_CAUSE)
    rank = func.row_number().over(
        partition_by=(incident_findings.c.incident, *owners), order_by=newest_first
    )
    ranked = (
        select(incident_findings.c.incident, findings, rank.label("rank"))
        .join(findings, findings.c.id == incident_findings.c.finding)
        .where(incident_findings.c.incident.in_(bindparam("incidents", expanding=True)))
        .subquery()
    )
    query = select(ranked).where(ranked.c.rank <= bindparam("most"))
    return query.order_by(ranked.c.at, ranked.c.id)


def newest_values(
    connection: Connection,
    table: Table,
    convert: Callable[[Row[Any]], Value],
    numbers: Sequence[int],
    unreadable: Value,
) -> dict[int, Value]:
    """Return the converted newest row of each incident that has any."""
    values: dict[int, Value] = {}
    for chunk in chunks(numbers):
        rows = connection.execute(newest_rows(table), {"incidents": list(chunk)}).all()
        for row, value in iter_readable(connection, table, rows, convert):
            values[row.incident] = value
        for row in rows:
            values.setdefault(row.incident, unreadable)
    return values


def _acknowledged(connection: Connection, numbers: Sequence[int]) -> set[int]:
    column = acknowledgements.c.incident
    return {
        number
        for chunk in chunks(numbers)
        for number in connection.scalars(select(column).where(column.in_(chunk)))
    }
