"""Rows of outcomes, acknowledgements and overrides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, case, func, insert, select

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger import decision_rows
from forewarn.pipelines.incidents.ledger.chunks import chunks
from forewarn.pipelines.incidents.ledger.ledger_entries import ConfirmedFailure
from forewarn.pipelines.incidents.ledger.ledger_tables import (
    acknowledgements,
    action_states,
    actions,
    findings,
    incident_findings,
    incident_states,
    incidents,
    outcomes,
)
from forewarn.pipelines.incidents.ledger.quarantined_rows import MAX_TIME, iter_readable
from forewarn.response.decision.manual_override import Override
from forewarn.response.state.action import ActionState
from forewarn.response.state.finding import Provenance
from forewarn.response.state.incident import IncidentState, Outcome

__all__ = [
    "acknowledge",
    "add_outcome",
    "confirmed",
    "failure_times",
    "outcomes_after",
    "overrides",
]


def add_outcome(
    connection: Connection,
    incident: int,
    outcome: Outcome,
    *,
    now: Nanoseconds,
    who: str,
    why: str,
    failed_at: Nanoseconds | None,
    known_at: Nanoseconds | None,
) -> None:
    """Add an outcome of an incident, unless it equals the last one."""
    columns = (outcomes.c.outcome, outcomes.c.failed_at, outcomes.c.known_at)
    query = select(*columns).where(outcomes.c.incident == incident)
    last = connection.execute(query.order_by(outcomes.c.id.desc()).limit(1)).first()
    if last is not None and tuple(last) == (outcome.value, failed_at, known_at):
        return
    values = {"incident": incident, "outcome": outcome.value, "at": now, "who": who, "why": why}
    times = {"failed_at": failed_at, "known_at": known_at}
    versions = decision_rows.decision_versions(connection, incident)
    connection.execute(insert(outcomes).values(**values, **times, **versions))


def outcomes_after(connection: Connection, number: int) -> tuple[int, list[int]]:
    """Return the number of the newest outcome, and the incidents with outcomes after a number."""
    rows = connection.execute(
        select(outcomes.c.id, outcomes.c.incident).where(outcomes.c.id > number)
    ).all()
    return max([number, *(row.id for row in rows)]), [row.incident for row in rows]


def failure_times(connection: Connection, numbers: Sequence[int]) -> dict[int, Nanoseconds]:
    """Return the failure time of each incident whose newest outcome is a confirmed failure."""
    times: dict[int, Nanoseconds] = {}
    for chunk in chunks(numbers):
        newest = select(func.max(outcomes.c.id)).where(outcomes.c.incident.in_(chunk))
        query = select(outcomes).where(outcomes.c.id.in_(newest.group_by(outcomes.c.incident)))
        rows = connection.execute(query).all()
        times |= {
            row.incident: Nanoseconds(row.failed_at or row.at)
            for row, outcome in iter_readable(connection, outcomes, rows, _parse_outcome)
            if outcome is Outcome.CONFIRMED
        }
    return times


def confirmed(connection: Connection) -> list[ConfirmedFailure]:
    """Return the failures confirmed by the newest outcome of an incident, oldest first."""
    newest = select(func.max(outcomes.c.id)).group_by(outcomes.c.incident)
    query = (
        select(outcomes, incidents.c.machine, incidents.c.gpu_serial)
        .join(incidents, incidents.c.id == outcomes.c.incident)
        .where(outcomes.c.id.in_(newest), outcomes.c.outcome == Outcome.CONFIRMED.value)
        .order_by(outcomes.c.id)
    )
    rows = connection.execute(query).all()
    return [failure for _, failure in iter_readable(connection, outcomes, rows, _parse_failure)]


def _parse_outcome(row: Row[Any]) -> Outcome:
    return Outcome(row.outcome)


def _parse_failure(row: Row[Any]) -> ConfirmedFailure:
    if not isinstance(row.machine, str) or not isinstance(row.gpu_serial, str | None):
        raise ValueError("its incident is unreadable")
    return ConfirmedFailure(
        incident=row.incident,
        machine=row.machine,
        gpu_serial=row.gpu_serial,
        failed_at=row.failed_at or row.at,
        known_at=row.known_at or row.at,
        why=row.why,
    )


def acknowledge(connection: Connection, incident: int, *, now: Nanoseconds, who: str) -> None:
    """Record that a person takes care of an incident; the first acknowledgement counts."""
    same = acknowledgements.c.incident == incident
    if connection.scalar(select(acknowledgements.c.at).where(same)) is None:
        connection.execute(insert(acknowledgements).values(incident=incident, at=now, who=who))


def overrides(connection: Connection, since: Nanoseconds) -> list[Override]:
    """Return the manual overrides since a time, oldest first, once per machine and cause.

    An overridden incident counts with its actions, or with its findings if it has no actions. An
    overridden action counts by itself.
    """
    candidates = [
        *_overridden_incidents(connection, since),
        *_overridden_actions(connection, since),
    ]
    rows = [
        row for row in candidates if _is_readable(row)
    ]  # damaged rows are reported where their table is read
    numbers = sorted({row.incident for row in rows})
    last = decision_rows.last_decisions(connection, numbers)
    provenance = _provenance(connection, numbers)
    by_cause = {
        (row.incident, row.machine, row.cause): Override(
            row.machine,
            row.cause,
            row.at,
            row.who,
            last[row.incident].severity if row.incident in last else None,
            provenance.get((row.incident, row.machine, row.cause), Provenance.HOST),
        )
        for row in rows
    }
    return sorted(by_cause.values(), key=lambda override: override.at)


def _is_readable(row: Row[Any]) -> bool:
    texts = (row.machine, row.cause, row.who)
    in_time = isinstance(row.at, int) and 0 <= row.at < MAX_TIME
    return in_time and all(isinstance(text, str) for text in texts)


def _provenance(
    connection: Connection, numbers: Sequence[int]
) -> dict[tuple[int, str, str], Provenance]:
    """Return the provenance of each (incident, machine, cause) of some incidents."""
    names = (findings.c.machine, findings.c.cause)
    by_host = func.max(case((findings.c.vouched == Provenance.SHARED.value, 0), else_=1))
    provenance: dict[tuple[int, str, str], Provenance] = {}
    for chunk in chunks(numbers):
        query = (
            select(incident_findings.c.incident, *names, by_host.label("by_host"))
            .join(findings, findings.c.id == incident_findings.c.finding)
            .where(incident_findings.c.incident.in_(chunk))
            .group_by(incident_findings.c.incident, *names)
        )
        for incident, machine, cause, from_host in connection.execute(query):
            provenance[incident, machine, cause] = (
                Provenance.HOST if from_host else Provenance.SHARED
            )
    return provenance


def _overridden_actions(connection: Connection, since: Nanoseconds) -> Sequence[Any]:
    query = (
        select(
            *(actions.c.incident, actions.c.machine, actions.c.cause),
            *(action_states.c.at, action_states.c.who),
        )
        .join(actions, actions.c.id == action_states.c.action)
        .where(action_states.c.state == ActionState.OVERRIDDEN.value, action_states.c.at >= since)
    )
    return connection.execute(query).all()


def _overridden_incidents(connection: Connection, since: Nanoseconds) -> Sequence[Any]:
    end = (incident_states.c.at, incident_states.c.who)
    overridden = (
        incident_states.c.state == IncidentState.OVERRIDDEN.value,
        incident_states.c.at >= since,
    )
    by_actions = (
        select(actions.c.incident, actions.c.machine, actions.c.cause, *end)
        .join(incident_states, incident_states.c.incident == actions.c.incident)
        .where(*overridden)
    )
    without = ~select(actions.c.id).where(actions.c.incident == incident_states.c.incident).exists()
    by_findings = (
        select(incident_findings.c.incident, findings.c.machine, findings.c.cause, *end)
        .join(incident_findings, incident_findings.c.incident == incident_states.c.incident)
        .join(findings, findings.c.id == incident_findings.c.finding)
        .where(*overridden, without)
    )
    return [*connection.execute(by_actions), *connection.execute(by_findings)]
