"""Short rows of incidents for pages: heads, incidents of a job, and who changed what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Table, case, select

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.chunks import chunks
from forewarn.pipelines.incidents.ledger.incident_rows import newest_values, states_of
from forewarn.pipelines.incidents.ledger.ledger_tables import (
    acknowledgements,
    approvals,
    decisions,
    findings,
    incident_findings,
    incident_states,
    incidents,
    newest_rows,
    outcomes,
)
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.response.state.decision import Ruling
from forewarn.response.state.finding import Provenance
from forewarn.response.state.incident import IncidentState, Outcome
from forewarn.response.state.step import Step

__all__ = ["IncidentChange", "IncidentHead", "changes", "ended_heads", "heads", "ids_of_job"]


class IncidentHead(NamedTuple):
    """An incident without findings and actions.

    `ruling`, `step`, `reason` and `decided_at` are of its last decision; `approved` tells whether a
    person has approved that one. `outcome` is None while unknown, and where it was not read.
    """

    id: int
    machine: str
    gpu_serial: str | None
    shared: str
    opened_at: Nanoseconds
    ruling: Ruling | None
    step: Step | None
    reason: str
    acknowledged: bool = False
    decided_at: Nanoseconds = Nanoseconds(0)
    approved: bool = False
    state: IncidentState = IncidentState.OPEN
    outcome: Outcome | None = None


class IncidentChange(NamedTuple):
    """An entry of an incident's history; `at` in nanoseconds since 1970 UTC."""

    at: Nanoseconds
    who: str
    what: str
    detail: str


def heads(connection: Connection, numbers: Sequence[int]) -> list[IncidentHead]:
    """Return the heads of incidents, in the given order."""
    taken, approved = set[int](), set[tuple[int, int]]()
    for chunk in chunks(numbers):
        query = select(acknowledgements.c.incident).where(acknowledgements.c.incident.in_(chunk))
        taken |= set(connection.scalars(query))
        granted = select(approvals.c.incident, approvals.c.decision_at)
        granted = granted.where(approvals.c.incident.in_(chunk))
        approved |= {(row.incident, row.decision_at) for row in connection.execute(granted)}
    return [
        head._replace(
            acknowledged=head.id in taken, approved=(head.id, head.decided_at) in approved
        )
        for head in _decided_heads(connection, numbers)
    ]


def ended_heads(connection: Connection, numbers: Sequence[int]) -> list[IncidentHead]:
    """Return the heads of incidents that may have ended, in the given order.

    What people did about them is not read. An incident that was opened without a serial has the one
    that its findings name.
    """
    listed = _decided_heads(connection, numbers)
    if not listed:
        return []
    states = states_of(connection, numbers)
    results = newest_values(connection, outcomes, lambda row: Outcome(row.outcome), numbers, None)
    serials = _serials(connection, [h.id for h in listed if not (h.gpu_serial or h.shared)])
    return [
        head._replace(
            gpu_serial=serials.get(head.id, head.gpu_serial),
            state=states.get(head.id, IncidentState.OPEN),
            outcome=results.get(head.id),
        )
        for head in listed
    ]


def _decided_heads(connection: Connection, numbers: Sequence[int]) -> list[IncidentHead]:
    """Return incidents with their last decision, in the given order."""
    known: dict[int, IncidentHead] = {}
    for chunk in chunks(numbers):
        last = connection.execute(newest_rows(decisions), {"incidents": list(chunk)}).all()
        rows = iter_readable(connection, decisions, last, _ruling)
        rulings = {row.incident: ruling for row, ruling in rows}
        selected = connection.execute(select(incidents).where(incidents.c.id.in_(chunk))).all()
        for row, _ in iter_readable(connection, incidents, selected, tuple):
            ruling, step, reason, at = rulings.get(row.id, (None, None, "", Nanoseconds(0)))
            known[row.id] = IncidentHead(
                *(row.id, row.machine, row.gpu_serial, row.shared, Nanoseconds(row.opened_at)),
                *(ruling, step, reason),
                decided_at=at,
            )
    return [known[number] for number in numbers if number in known]


def _serials(connection: Connection, numbers: Sequence[int]) -> dict[int, str]:
    """Return the serial that the findings of each incident name; those of the host come first."""
    serials: dict[int, str] = {}
    for chunk in chunks(numbers):
        by_host = case((findings.c.vouched == Provenance.HOST.value, 0), else_=1)
        query = select(incident_findings.c.incident, findings.c.gpu_serial)
        query = query.join(findings, findings.c.id == incident_findings.c.finding)
        query = query.where(
            incident_findings.c.incident.in_(chunk), findings.c.gpu_serial.is_not(None)
        )
        for row in connection.execute(query.order_by(by_host, findings.c.at, findings.c.id)):
            serials.setdefault(row.incident, str(row.gpu_serial))
    return serials


def _ruling(row: Row[Any]) -> tuple[Ruling, Step, str, Nanoseconds]:
    return Ruling(row.ruling), Step(row.step), row.reason, Nanoseconds(row.at)


def ids_of_job(connection: Connection, job: str, limit: int) -> list[int]:
    """Return the numbers of the incidents with a finding about a job, newest first."""
    query = select(incident_findings.c.incident).distinct()
    query = query.join(findings, findings.c.id == incident_findings.c.finding)
    query = query.where(findings.c.job == job).order_by(incident_findings.c.incident.desc())
    return list(connection.scalars(query.limit(limit)))


def changes(connection: Connection, number: int) -> list[IncidentChange]:
    """Return the changes of an incident that are no decisions and no actions, by time."""
    entries = [
        *_changes(connection, acknowledgements, number, lambda _: ("acknowledged", "")),
        *_changes(connection, approvals, number, lambda _: ("approved", "")),
        *_changes(connection, outcomes, number, lambda row: (f"outcome {row.outcome}", row.why)),
        *_changes(connection, incident_states, number, lambda row: (row.state, row.why)),
    ]
    return sorted(entries)


def _changes(connection: Connection, table: Table, number: int, words: Any) -> list[IncidentChange]:
    rows = connection.execute(select(table).where(table.c.incident == number)).all()
    return [
        IncidentChange(Nanoseconds(row.at), row.who, *pair)
        for row, pair in iter_readable(connection, table, rows, words)
    ]
