"""Messages: what receivers are told about an incident, an alert, or many changes at once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Severity
from forewarn.response.state.incident import Incident, IncidentState, Outcome
from forewarn.response.state.step import Step

__all__ = [
    "ALERT_SEVERITY",
    "MAX_LISTED",
    "Digest",
    "IncidentSummary",
    "Message",
    "MessageKind",
    "alert_message",
    "digest_message",
    "incident_key",
    "incident_message",
    "incident_severity",
    "summarize_incident",
    "trial_message",
]

MAX_LISTED: Final = 20
"""Machines of an incident, and incidents of a digest, that a message lists."""

ALERT_SEVERITY: Final = Severity.ERROR
"""Severity of alerts, which page no person: the alert rules of Prometheus do that."""

_MAX_REASON: Final = 500  # characters


class MessageKind(StrEnum):
    """What a message is about.

    `PREDICTIONS` is the daily digest of incidents that only predictions support; `DIGEST` holds
    the changes above the hourly limit.
    """

    INCIDENT = "incident"
    ALERT = "alert"
    DIGEST = "digest"
    PREDICTIONS = "predictions"
    TEST = "test"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class IncidentSummary(_Value):
    """State of an incident after a change; times are ISO 8601, UTC."""

    id: int
    key: str
    change: int
    state: IncidentState
    opened_at: str
    machine: str
    machines: tuple[str, ...]
    machine_count: int
    gpu_serial: str | None
    shared: str
    severity: Severity
    step: Step | None
    ruling: Ruling | None
    reason: str
    acknowledged: bool
    outcome: Outcome | None

    @property
    def line(self) -> str:
        """The state in one line."""
        where = self.shared or self.machine
        if self.shared:
            where += f" ({self.machine_count} machines)"
        head = f"incident {self.id}, {where}"
        if self.state is not IncidentState.OPEN:
            outcome = f" ({self.outcome})" if self.outcome else ""
            return f"{head}: {self.state}{outcome}"
        step = f", {self.step} ({self.ruling})" if self.step else ""
        known = ", acknowledged" if self.acknowledged else ""
        return f"{head}: {self.severity}{step}{known}: {self.reason}"


class Digest(_Value):
    """Several changes: how many of each severity, and the first incidents and alerts."""

    since: str
    changes: int = 0
    severities: dict[Severity, int] = {}
    incidents: tuple[IncidentSummary, ...] = ()
    alerts: tuple[str, ...] = ()

    def plus(self, other: Digest, changed: Collection[int] = ()) -> Digest:
        """Return the digest with the changes of another one.

        The states of incidents in `changed` are removed: a message has told, or will tell, a later
        one.
        """
        severities = Counter(self.severities) + Counter(other.severities)
        incidents = [summary for summary in self.incidents if summary.id not in changed]
        return Digest(
            since=self.since,
            changes=self.changes + other.changes,
            severities={name: severities[name] for name in Severity if name in severities},
            incidents=(*incidents, *other.incidents)[:MAX_LISTED],
            alerts=(*self.alerts, *other.alerts)[:MAX_LISTED],
        )


class Message(_Value):
    """A message; receivers may get it more than once, each time with the same `id`."""

    version: int = 1
    id: str
    kind: MessageKind
    time: str
    summary: str
    severity: Severity
    page: bool = False
    incident: IncidentSummary | None = None
    digest: Digest | None = None

    def text(self) -> str:
        """Return the message for people, a line per incident of a digest."""
        if self.digest is None:
            return self.summary
        lines = [*self.digest.alerts, *(summary.line for summary in self.digest.incidents)]
        hidden = self.digest.changes - len(lines)
        more = [f"{hidden} more changes: `forewarn incidents`"] if hidden > 0 else []
        return "\n".join([self.summary, *lines, *more])


def incident_key(incident: Incident) -> str:
    """Return a name of an incident that no other ledger uses for another one."""
    return f"forewarn-{incident.id}-{incident.opened_at // SECOND:x}"


def incident_severity(incident: Incident, decision: Decision | None) -> Severity:
    """Return the severity that the policy gives, else the highest that a source states."""
    if decision is not None:
        return decision.severity
    stated = [finding.severity for finding in incident.findings if finding.severity is not None]
    return max(stated, key=lambda severity: severity.rank, default=Severity.NOTICE)


def summarize_incident(
    incident: Incident, decision: Decision | None, severity: Severity, change: int
) -> IncidentSummary:
    """Return the state of an incident after a change.

    Parameters
    ----------
    incident : Incident
    decision : Decision or None
        The last one.
    severity : Severity
    change : int
        Number of the change, 1 for the first.
    """
    machines = incident.machines or (incident.machine,)
    return IncidentSummary(
        id=incident.id,
        key=incident_key(incident),
        change=change,
        state=incident.state,
        opened_at=format_iso(incident.opened_at),
        machine=incident.machine,
        machines=machines[:MAX_LISTED],
        machine_count=len(machines),
        gpu_serial=incident.gpu_serial,
        shared=incident.shared,
        severity=severity,
        step=None if decision is None else decision.step,
        ruling=None if decision is None else decision.ruling,
        reason="" if decision is None else decision.reason[:_MAX_REASON],
        acknowledged=incident.acknowledged,
        outcome=incident.outcome,
    )


def incident_message(summary: IncidentSummary, now: Nanoseconds, *, page: bool) -> Message:
    """Return the message about a change of an incident."""
    return Message(
        id=f"{summary.key}-{summary.change}",
        kind=MessageKind.INCIDENT,
        time=format_iso(now),
        summary=summary.line,
        severity=summary.severity,
        page=page,
        incident=summary,
    )


def alert_message(text: str, now: Nanoseconds) -> Message:
    """Return the message about a problem of forewarn itself."""
    text = text[:_MAX_REASON]
    digits = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
    return Message(
        id=f"forewarn-alert-{now // SECOND:x}-{digits}",
        kind=MessageKind.ALERT,
        time=format_iso(now),
        summary=text,
        severity=ALERT_SEVERITY,
    )


def digest_message(name: str, kind: MessageKind, digest: Digest, now: Nanoseconds) -> Message:
    """Return the message about several changes."""
    counts = ", ".join(f"{count} {severity}" for severity, count in digest.severities.items())
    what = "predictions" if kind is MessageKind.PREDICTIONS else "incidents"
    highest = max(digest.severities, key=lambda severity: severity.rank, default=Severity.NOTICE)
    return Message(
        id=name,
        kind=kind,
        time=format_iso(now),
        summary=f"{digest.changes} changes of {what} since {digest.since} ({counts})",
        severity=Severity.NOTICE if kind is MessageKind.PREDICTIONS else highest,
        digest=digest,
    )


def trial_message(receiver: str, now: Nanoseconds) -> Message:
    """Return a message that only shows that a receiver works."""
    return Message(
        id=f"forewarn-test-{now:x}",
        kind=MessageKind.TEST,
        time=format_iso(now),
        summary=f"test message of forewarn to the receiver {receiver}",
        severity=Severity.NOTICE,
    )
