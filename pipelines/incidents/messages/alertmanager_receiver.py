"""Alertmanager: open incidents as alerts, posted again each minute, resolved when they end.

Alertmanager groups, repeats and silences by itself. It gets the state, not single messages: what
it missed while it was down, the next post tells.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, select

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import message_states
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.pipelines.incidents.messages.change_messages import told_severity
from forewarn.pipelines.incidents.messages.message import Message, summarize_incident
from forewarn.pipelines.incidents.messages.receiver import post_or_raise
from forewarn.pipelines.runtime.http_post import HttpPoster
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.finding import Severity
from forewarn.response.state.incident import Incident

__all__ = ["ALERT_NAME", "POST_SECONDS", "Alertmanager"]

ALERT_NAME: Final = "ForewarnIncident"
POST_SECONDS: Final = 60.0
"""Time between two posts: much less than `resolve_timeout`, five minutes by default."""

_RESOLVE_AFTER: Final = 5 * MINUTE  # without another post
_RESOLVED_FOR: Final = 15 * MINUTE  # for which an end is posted again
_MAX_ALERTS: Final = 1_000
_BATCH_ALERTS: Final = 250


@dataclass(frozen=True, slots=True)
class Alertmanager:
    """Alertmanager at `/api/v2/alerts`.

    Attributes
    ----------
    poster : HttpPoster
    token : str
        Bearer token; empty for none.
    min_severity : Severity
    """

    poster: HttpPoster
    token: str = ""
    min_severity: Severity = Severity.WARNING

    def send(self, message: Message, now: Nanoseconds) -> None:
        """Post a test message as an alert that ends by itself."""
        labels = {"alertname": "ForewarnTest", "severity": str(message.severity)}
        self._post([_alert(labels, message.summary, now, now + MINUTE)])

    def post_incidents(self, ledger: Ledger, now: Nanoseconds) -> None:
        """Post the open incidents, the 1,000 most severe ones, and those that ended just now.

        Raises
        ------
        SendError
            If Alertmanager does not accept them.
        LedgerError
            If the ledger does not answer.
        """
        alerts = [
            _incident_alert(incident, row, now) for incident, row in self._incidents(ledger, now)
        ]
        for start in range(0, len(alerts), _BATCH_ALERTS):
            self._post(alerts[start : start + _BATCH_ALERTS])

    def _incidents(self, ledger: Ledger, now: Nanoseconds) -> list[tuple[Incident, Row[Any]]]:
        column, lowest = message_states.c, self.min_severity.rank
        reached = column.predicted.is_(False) & (column.highest >= lowest)
        is_open = select(message_states).where(reached, column.ended.is_(False))
        recent = select(message_states).where(
            reached, column.ended, column.at > now - _RESOLVED_FOR
        )
        with ledger.database.reading() as connection:
            first = (column.severity.desc(), column.incident)
            rows = list(connection.execute(is_open.order_by(*first).limit(_MAX_ALERTS)))
            rows += connection.execute(recent.order_by(column.at.desc()).limit(_MAX_ALERTS))
            readable = iter_readable(connection, message_states, rows, told_severity)
            by_number = {row.incident: row for row, _ in readable}
        return [(incident, by_number[incident.id]) for incident in ledger.by_number([*by_number])]

    def _post(self, alerts: Sequence[dict[str, Any]]) -> None:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        post_or_raise(self.poster, json.dumps(alerts).encode(), **headers)

    def close(self) -> None:
        """Close connections."""
        self.poster.close()


def _incident_alert(incident: Incident, row: Row[Any], now: Nanoseconds) -> dict[str, Any]:
    severity = told_severity(row)
    summary = summarize_incident(incident, incident.decision, severity, row.change)
    labels = {"alertname": ALERT_NAME, "severity": str(severity)}
    labels |= {"incident": str(incident.id), "machine": incident.machine}
    end = row.at if row.ended else now + _RESOLVE_AFTER
    return _alert(labels, summary.line, incident.opened_at, end)


def _alert(labels: dict[str, str], summary: str, start: int, end: int) -> dict[str, Any]:
    return {
        "labels": labels,
        "annotations": {"summary": summary},
        "startsAt": format_iso(start),
        "endsAt": format_iso(end),
    }
