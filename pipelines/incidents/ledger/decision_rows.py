"""Rows of decisions and approvals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, select

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.chunks import chunks
from forewarn.pipelines.incidents.ledger.ledger_tables import approvals, decisions, newest_rows
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.response.decision.situation import Approval
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import FindingKey, Provenance, Severity
from forewarn.response.state.step import DrainMode, Step

__all__ = [
    "ApprovalError",
    "add",
    "approve",
    "decision_versions",
    "decisions_by_incident",
    "incident_decisions",
    "last_approvals",
    "last_decisions",
]


class ApprovalError(InputError):
    """The approved decision is not a proposal, or no longer valid."""


def add(connection: Connection, decision: Decision) -> bool:
    """Add a decision if it or its reason differs from the last one."""
    last = last_decisions(connection, [decision.incident]).get(decision.incident)
    if last is not None and decision.repeats(last):
        return False
    connection.execute(
        insert(decisions).values(
            incident=decision.incident,
            at=decision.at,
            ruling=decision.ruling.value,
            step=decision.step.value,
            mode=None if decision.mode is None else decision.mode.value,
            severity=decision.severity.value,
            reason=decision.reason,
            until=decision.until,
            valid_until=decision.valid_until,
            findings=json.dumps(decision.findings, separators=(",", ":")),
            policy_version=decision.policy_version,
            model_version=decision.model_version,
            who=decision.who,
            propensity=decision.propensity,
            control=decision.control,
        )
    )
    return True


def last_decisions(connection: Connection, incidents: Sequence[int]) -> dict[int, Decision]:
    """Return the last decision of each incident that has any."""
    last: dict[int, Decision] = {}
    for chunk in chunks(incidents):
        rows = connection.execute(newest_rows(decisions), {"incidents": list(chunk)}).all()
        last |= {decision.incident: decision for decision in _readable(connection, rows)}
    return last


def incident_decisions(connection: Connection, incident: int) -> list[Decision]:
    """Return all decisions of an incident, oldest first."""
    query = select(decisions).where(decisions.c.incident == incident).order_by(decisions.c.id)
    return list(_decisions(connection, query))


def decisions_by_incident(
    connection: Connection, incidents: Sequence[int]
) -> dict[int, list[Decision]]:
    """Return all decisions of each incident that has any, oldest first."""
    by_incident: dict[int, list[Decision]] = defaultdict(list)
    for chunk in chunks(incidents):
        query = select(decisions).where(decisions.c.incident.in_(chunk)).order_by(decisions.c.id)
        for decision in _decisions(connection, query):
            by_incident[decision.incident].append(decision)
    return dict(by_incident)


def _decisions(connection: Connection, query: Select[Any]) -> Iterator[Decision]:
    """Yield the readable decisions of a query."""
    return _readable(connection, connection.execute(query).all())


def _readable(connection: Connection, rows: Iterable[Row[Any]]) -> Iterator[Decision]:
    for _, decision in iter_readable(connection, decisions, rows, _parse_decision):
        yield decision


def _parse_decision(row: Row[Any]) -> Decision:
    return Decision(
        incident=row.incident,
        at=row.at,
        ruling=Ruling(row.ruling),
        step=Step(row.step),
        mode=None if row.mode is None else DrainMode(row.mode),
        severity=Severity(row.severity),
        reason=row.reason,
        until=row.until,
        valid_until=row.valid_until,
        findings=tuple(_parse_key(*names) for names in json.loads(row.findings)),
        policy_version=row.policy_version,
        model_version=row.model_version,
        who=row.who,
        propensity=row.propensity,
        control=row.control,
    )


def _parse_key(source: str, machine: str, key: str, vouched: str) -> FindingKey:
    if not all(isinstance(name, str) for name in (source, machine, key)):
        raise ValueError("`findings` has a key that is not text")
    return FindingKey(source, machine, key, Provenance(vouched))


def decision_versions(connection: Connection, incident: int) -> dict[str, str]:
    """Return the policy and model versions of the last decision about an incident."""
    columns = (decisions.c.policy_version, decisions.c.model_version)
    query = select(*columns).where(decisions.c.incident == incident)
    row = connection.execute(query.order_by(decisions.c.id.desc()).limit(1)).first()
    policy, model = ("", "") if row is None else row
    return {"policy_version": str(policy), "model_version": str(model)}


def approve(
    connection: Connection, incident: int, decision_at: Nanoseconds, *, now: Nanoseconds, who: str
) -> None:
    """Add a person's approval of the last decision, which has to be a valid proposal.

    Raises
    ------
    ApprovalError
        If the decision was replaced, is not a proposal, or is no longer valid.
    """
    last = last_decisions(connection, [incident]).get(incident)
    if last is None or last.at != decision_at:
        raise ApprovalError(
            f"incident {incident}: there is a newer decision than the approved one. Look at it "
            "and approve again."
        )
    if last.ruling is not Ruling.PROPOSE:
        raise ApprovalError(
            f"incident {incident}: its last decision is `{last.ruling}`, expected `propose`"
        )
    if now >= last.valid_until:
        raise ApprovalError(f"incident {incident}: the proposal is no longer valid")
    query = select(approvals.c.id).where(
        *(approvals.c.incident == incident, approvals.c.decision_at == decision_at),
        approvals.c.who == who,
    )
    if connection.scalar(query) is None:
        values = {"incident": incident, "decision_at": decision_at, "at": now, "who": who}
        connection.execute(
            insert(approvals).values(**values, **decision_versions(connection, incident))
        )


def last_approvals(connection: Connection, incidents: Sequence[int]) -> dict[int, Approval]:
    """Return the last approval of each incident that has any."""
    last: dict[int, Approval] = {}
    same = (decisions.c.incident == approvals.c.incident) & (
        decisions.c.at == approvals.c.decision_at
    )
    approved = (approvals.c.at.label("approved_at"), approvals.c.who.label("approved_by"))
    for chunk in chunks(incidents):
        query = select(decisions, *approved).join(approvals, same)
        query = query.where(approvals.c.incident.in_(chunk)).order_by(
            approvals.c.id, decisions.c.id
        )
        rows = connection.execute(query).all()
        for _, approval in iter_readable(connection, decisions, rows, _parse_approval):
            last[approval.decision.incident] = approval
    return last


def _parse_approval(row: Row[Any]) -> Approval:
    if not isinstance(row.approved_at, int) or not isinstance(row.approved_by, str):
        raise ValueError("its approval is unreadable")
    return Approval(_parse_decision(row), Nanoseconds(row.approved_at), row.approved_by)
