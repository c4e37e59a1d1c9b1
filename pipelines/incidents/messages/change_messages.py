"""Messages about changes: which change of which incident each receiver is told, and how."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.ledger.chunks import chunks
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import message_states, messages
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.pipelines.incidents.messages.message import (
    ALERT_SEVERITY,
    MAX_LISTED,
    Digest,
    IncidentSummary,
    Message,
    MessageKind,
    alert_message,
    digest_message,
    incident_message,
    incident_severity,
    summarize_incident,
)
from forewarn.pipelines.incidents.messages.outbox import add_messages, read_message
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.decision import Decision
from forewarn.response.state.finding import Severity
from forewarn.response.state.incident import Incident, IncidentState

__all__ = ["MAX_HOURLY", "ChangeMessages", "Route", "told_severity"]

MAX_HOURLY: Final = 20
"""Messages per receiver and hour that are not pages; further changes go into a digest."""

_DIGEST_WAIT: Final = 15 * MINUTE
_READ_AT_ONCE: Final = 1_000  # ended incidents
_MAX_CHANGES: Final = 2**31 - 1

Decided = Sequence[tuple[Incident, Decision | None]]


@dataclass(frozen=True, slots=True)
class Route:
    """Which messages a receiver gets.

    Attributes
    ----------
    name : str
    min_severity : Severity
        An incident is told from the time at which it first has this severity.
    page_severity : Severity
        From this severity on a new incident wakes someone.
    digests : bool
        Whether messages above the hourly limit form a digest. False: the receiver groups by itself,
        and gets neither predictions nor alerts.
    incidents : bool
        False: only alerts.
    """

    name: str
    min_severity: Severity = Severity.WARNING
    page_severity: Severity = Severity.CRITICAL
    digests: bool = True
    incidents: bool = True


@dataclass(frozen=True, slots=True)
class _Change:
    incident: Incident
    decision: Decision | None
    severity: Severity  # when it ends, as it was told before
    number: int
    reported: str
    highest_before: int  # rank of a severity; -1 for a new incident
    predicted: bool

    @property
    def highest(self) -> int:
        return max(self.highest_before, self.severity.rank)

    @property
    def ended(self) -> bool:
        return self.incident.state is not IncidentState.OPEN

    @property
    def summary(self) -> IncidentSummary:
        return summarize_incident(self.incident, self.decision, self.severity, self.number)

    def pages(self, severity: Severity) -> bool:
        """Tell whether the change wakes someone: the incident reached the severity just now."""
        return not self.ended and self.highest_before < severity.rank <= self.severity.rank


@dataclass(frozen=True, slots=True)
class ChangeMessages:
    """Writes messages about changes into the outbox.

    Attributes
    ----------
    ledger : Ledger
    routes : sequence of Route
    quiet : int
        Nanoseconds for which a new incident that is no page is not told, because it may become part
        of a shared one.
    """

    ledger: Ledger
    routes: Sequence[Route]
    quiet: Nanoseconds

    def write(self, decided: Decided, now: Nanoseconds) -> None:
        """Write a message about each incident that has changed since it was last told.

        Parameters
        ----------
        decided : sequence of (Incident, Decision or None)
            The open incidents with their last decisions.
        now : int
            Nanoseconds since 1970 UTC.
        """
        states = self._states()
        open_ids = {incident.id for incident, _ in decided}
        changes = [*self._changes(decided, states, now)]
        changes += self._ends([number for number in states if number not in open_ids], states)
        if not changes:
            return
        with self.ledger.database.writing() as connection:
            changes = _not_told(connection, changes)
            for route in self.routes:
                _add(connection, route, changes, now)
            _record(connection, changes, now)

    def add_alert(self, connection: Connection, text: str, now: Nanoseconds) -> None:
        """Add an alert for each receiver that gets alerts."""
        message = alert_message(text, now)
        counts = {message.severity: 1}
        digest = Digest(since=message.time, changes=1, severities=counts, alerts=(message.summary,))
        for route in self.routes:
            if not route.digests or route.min_severity.rank > ALERT_SEVERITY.rank:
                continue
            if _hourly_budget(connection, route, now) > 0:
                add_messages(connection, [_row(route, message, now)])
            else:
                _add_digest(connection, route, MessageKind.DIGEST, digest, (), now)

    def _states(self) -> dict[int, Row[Any]]:
        """Return what was told of each incident that has not been told to have ended."""
        query = select(message_states).where(message_states.c.ended.is_(False))
        with self.ledger.database.reading() as connection:
            rows = connection.execute(query).all()
            readable = iter_readable(connection, message_states, rows, told_severity)
            return {row.incident: row for row, _ in readable}

    def _changes(
        self, decided: Decided, states: Mapping[int, Row[Any]], now: Nanoseconds
    ) -> Iterator[_Change]:
        severities = [route.page_severity for route in self.routes]
        page = min(severities, key=lambda s: s.rank, default=Severity.CRITICAL)
        for incident, decision in decided:
            state = states.get(incident.id)
            change = _change(incident, decision, state)
            early = state is None and now - incident.opened_at < self.quiet
            if change is not None and (not early or (change.pages(page) and not change.predicted)):
                yield change

    def _ends(self, numbers: Sequence[int], states: Mapping[int, Row[Any]]) -> Iterator[_Change]:
        for start in range(0, len(numbers), _READ_AT_ONCE):
            for incident in self.ledger.by_number(numbers[start : start + _READ_AT_ONCE]):
                change = _change(incident, incident.decision, states[incident.id])
                if incident.state is not IncidentState.OPEN and change is not None:
                    yield change


def _change(
    incident: Incident, decision: Decision | None, state: Row[Any] | None
) -> _Change | None:
    """Return the change of an incident since it was last told; None if there is none."""
    severity = incident_severity(incident, decision)
    parts: list[object] = [incident.state]
    if incident.state is IncidentState.OPEN:
        parts += [severity, incident.acknowledged]
        parts += [] if decision is None else [decision.ruling, decision.step]
    reported = "/".join(map(str, parts))
    if state is not None and state.reported == reported:
        return None
    predicted = bool(incident.findings) and all(f.predicts for f in incident.findings)
    if state is None:
        return _Change(incident, decision, severity, 1, reported, -1, predicted)
    if incident.state is not IncidentState.OPEN:
        severity = told_severity(state)
    number = min(state.change + 1, _MAX_CHANGES)
    return _Change(incident, decision, severity, number, reported, state.highest, predicted)


def _not_told(connection: Connection, changes: Sequence[_Change]) -> list[_Change]:
    """Return the changes that no other responder has told meanwhile."""
    numbers = dict[int, int]()
    for chunk in chunks([change.incident.id for change in changes]):
        query = select(message_states.c.incident, message_states.c.change)
        rows = connection.execute(query.where(message_states.c.incident.in_(chunk)))
        numbers |= {row.incident: row.change for row in rows}
    return [c for c in changes if numbers.get(c.incident.id, 0) == c.number - 1]


def told_severity(row: Row[Any]) -> Severity:
    """Return the severity with which an incident was last told.

    Raises
    ------
    ValueError
        If the row is damaged.
    """
    rank: int = row.severity
    if not 0 <= rank < len(Severity):
        raise ValueError(f"`severity` is {rank}, expected the rank of a severity")
    return list(Severity)[rank]


def _record(connection: Connection, changes: Sequence[_Change], now: Nanoseconds) -> None:
    """Record what has been told."""
    rows = [
        {
            "incident": change.incident.id,
            "change": change.number,
            "reported": change.reported,
            "severity": change.severity.rank,
            "highest": change.highest,
            "predicted": change.predicted,
            "ended": change.ended,
            "at": now,
        }
        for change in changes
    ]
    for chunk in chunks([change.incident.id for change in changes]):
        connection.execute(delete(message_states).where(message_states.c.incident.in_(chunk)))
    if rows:
        connection.execute(insert(message_states), rows)


def _add(
    connection: Connection, route: Route, changes: Sequence[_Change], now: Nanoseconds
) -> None:
    """Add the messages of one receiver: pages, single ones up to the limit, and digests."""
    if not route.incidents:
        return
    budget = _hourly_budget(connection, route, now)
    by_kind = defaultdict[MessageKind, list[_Change]](list)
    for change in changes:
        if change.predicted:
            kind = MessageKind.PREDICTIONS
        elif change.highest < route.min_severity.rank:
            continue
        elif _pages(route, change) or not route.digests or budget > 0:
            kind = MessageKind.INCIDENT
            budget -= not _pages(route, change)
        else:
            kind = MessageKind.DIGEST
        by_kind[kind].append(change)
    rows = [
        _row(route, incident_message(c.summary, now, page=_pages(route, c)), now, c.incident.id)
        for c in by_kind[MessageKind.INCIDENT]
    ]
    add_messages(connection, rows)
    changed = {change.incident.id for change in changes}
    for kind in (MessageKind.DIGEST, MessageKind.PREDICTIONS) if route.digests else ():
        digest = _digest(by_kind[kind], now)
        _add_digest(connection, route, kind, digest, changed, now)


def _hourly_budget(connection: Connection, route: Route, now: Nanoseconds) -> int:
    """Return how many more messages that are not pages a receiver gets this hour."""
    recent = (messages.c.receiver == route.name) & (messages.c.at > now - HOUR)
    single = messages.c.kind.in_((MessageKind.INCIDENT, MessageKind.ALERT)) & ~messages.c.page
    return MAX_HOURLY - (connection.scalar(select(func.count()).where(recent, single)) or 0)


def _pages(route: Route, change: _Change) -> bool:
    return change.pages(route.page_severity) and not change.predicted


def _row(
    route: Route, message: Message, now: Nanoseconds, incident: int | None = None
) -> dict[str, Any]:
    return {
        "receiver": route.name,
        "incident": incident,
        "kind": message.kind,
        "page": message.page,
        "body": message.model_dump_json(),
        "at": now,
        "due_at": now,
    }


def _digest(changes: Sequence[_Change], now: Nanoseconds) -> Digest:
    counts = Counter(change.severity for change in changes)
    return Digest(
        since=format_iso(now),
        changes=len(changes),
        severities=dict(counts),
        incidents=tuple(change.summary for change in changes[:MAX_LISTED]),
    )


def _add_digest(
    connection: Connection,
    route: Route,
    kind: MessageKind,
    digest: Digest,
    changed: Collection[int],
    now: Nanoseconds,
) -> None:
    """Add changes to the digest that is not due yet, or begin one."""
    column = messages.c
    same = (column.receiver == route.name) & (column.kind == kind)
    is_open = column.ended_at.is_(None) & (column.attempts == 0) & (column.due_at > now)
    row = connection.execute(select(messages).where(same, is_open).limit(1)).first()
    message = None if row is None else read_message(connection, row, now)
    if row is not None and message is not None:
        earlier = message.digest or Digest(since=message.time)
        body = digest_message(message.id, kind, earlier.plus(digest, changed), now)
        values = {"body": body.model_dump_json()}
        connection.execute(update(messages).where(column.id == row.id).values(**values))
    elif digest.changes:
        message = digest_message(f"forewarn-{kind}-{now:x}", kind, digest, now)
        due = _digest_due(connection, route, kind, now)
        add_messages(connection, [_row(route, message, now) | {"due_at": due}])


def _digest_due(
    connection: Connection, route: Route, kind: MessageKind, now: Nanoseconds
) -> Nanoseconds:
    """Return when a new digest is due: predictions at most once a day."""
    if kind is MessageKind.DIGEST:
        return Nanoseconds(now + _DIGEST_WAIT)
    same = (messages.c.receiver == route.name) & (messages.c.kind == kind)
    last = connection.scalar(select(func.max(messages.c.at)).where(same))
    newest = min(last, now) if isinstance(last, int) else 0
    return Nanoseconds(max(now + _DIGEST_WAIT, newest + DAY))
