"""The outbox: messages in the ledger that are to be sent, and the state of each receiver.

A message is written before it is sent, and ends when its receiver has accepted it. Several
processes may send from one outbox: a message that is being sent is not due for a minute, and the
messages of one incident go one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, or_, select, update

from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.ledger.audit import add_note
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import message_receivers, messages
from forewarn.pipelines.incidents.ledger.quarantined_rows import iter_readable
from forewarn.pipelines.incidents.messages.message import Message
from forewarn.pipelines.incidents.messages.receiver import SendError

__all__ = ["ClaimedMessage", "Outbox", "ReceiverState", "add_messages", "backoff", "read_message"]

_CLAIM: Final = 1 * MINUTE  # an attempt takes less, unless its process was killed
_MIN_BACKOFF: Final = 5 * SECOND
_MAX_BACKOFF: Final = 10 * MINUTE
_MAX_RETRY_AFTER: Final = 1 * HOUR
_MAX_DOUBLINGS: Final = 10
_MALFORMED_ENDS: Final = 1 * DAY
_SENT_ENDS: Final = 7 * DAY
_MAX_ERROR: Final = 200
_MAX_COUNT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ClaimedMessage:
    """A message that this process is to send now.

    Attributes
    ----------
    row : int
    attempts : int
        With this one.
    at : int
        When it was written, nanoseconds since 1970 UTC.
    message : Message
    """

    row: int
    attempts: int
    at: Nanoseconds
    message: Message


@dataclass(frozen=True, slots=True)
class ReceiverState:
    """State of a receiver.

    Attributes
    ----------
    name : str
    waiting : int
        Messages that are due and were not accepted yet.
    oldest : int or None
        Time since which it has accepted nothing, or at which its oldest due message was written,
        nanoseconds since 1970 UTC; None if neither is the case.
    retry_at : int
        Time of the next attempt after a failure.
    error : str
        Last error; empty while it accepts messages.
    """

    name: str
    waiting: int
    oldest: Nanoseconds | None
    retry_at: Nanoseconds
    error: str


def backoff(failures: int) -> int:
    """Return the nanoseconds to wait after a number of failures in a row.

    Examples
    --------
    >>> [backoff(failures) // SECOND for failures in (1, 2, 3, 9)]
    [5, 10, 20, 600]
    """
    return min(_MIN_BACKOFF << min(max(failures - 1, 0), _MAX_DOUBLINGS), _MAX_BACKOFF)


def add_messages(connection: Connection, rows: Sequence[dict[str, Any]]) -> None:
    """Add messages; each row has receiver, incident, kind, page, body, at and due_at."""
    if rows:
        connection.execute(insert(messages), [row | {"attempts": 0} for row in rows])


def _unsent(receiver: str) -> ColumnElement[bool]:
    return (messages.c.receiver == receiver) & messages.c.ended_at.is_(None)


class Outbox:
    """Messages of a ledger, for those that send them.

    Parameters
    ----------
    ledger : Ledger
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def register(self, names: Iterable[str], now: Nanoseconds) -> None:
        """Record which receivers there are; messages of others are dropped, with a note."""
        names = set(names)
        with self.ledger.database.reading() as connection:
            if _names(connection) == names:
                return
        with self.ledger.database.writing() as connection:
            known = _names(connection)
            for name in sorted(known - names):
                ended = update(messages).where(_unsent(name)).values(ended_at=now)
                count = connection.execute(ended).rowcount
                gone = message_receivers.c.name == name
                connection.execute(delete(message_receivers).where(gone))
                detail = f"receiver removed; {count} messages were not sent"
                add_note(
                    connection, now=now, who="forewarn", act="messages", target=name, detail=detail
                )
            new = [
                {"name": name, "failures": 0, "retry_at": 0, "error": ""}
                for name in sorted(names - known)
            ]
            if new:
                connection.execute(insert(message_receivers), new)

    def states(self, now: Nanoseconds) -> list[ReceiverState]:
        """Return the state of each receiver, by name."""
        column = messages.c
        started = or_(column.attempts > 0, column.due_at <= now)
        waiting = (
            select(column.receiver, func.count().label("n"), func.min(column.at).label("oldest"))
            .where(column.ended_at.is_(None), started)
            .group_by(column.receiver)
        )
        with self.ledger.database.reading() as connection:
            counts = {row.receiver: row for row in connection.execute(waiting)}
            query = select(message_receivers).order_by(message_receivers.c.name)
            selected = connection.execute(query).all()
            rows = list(iter_readable(connection, message_receivers, selected, lambda row: row))
        return [_state(row, counts.get(row.name), now) for row, _ in rows]

    def claim(self, receiver: str, now: Nanoseconds) -> ClaimedMessage | None:
        """Return the next due message of a receiver, which is not due again for a minute.

        Messages of one incident are due one after the other. Returns None if none is due, or the
        receiver has to be left alone.
        """
        with self.ledger.database.reading() as connection:
            if self.waits(connection, receiver, now) or _next(connection, receiver, now) is None:
                return None
        with self.ledger.database.writing() as connection:
            row = _next(connection, receiver, now)
            if row is None or self.waits(connection, receiver, now):
                return None
            message = read_message(connection, row, now)
            if message is None:
                return None
            attempts = min(row.attempts + 1, _MAX_COUNT)
            due = now + max(_CLAIM, backoff(attempts))
            claimed = update(messages).where(messages.c.id == row.id)
            connection.execute(claimed.values(attempts=attempts, due_at=due))
        return ClaimedMessage(row.id, attempts, row.at, message)

    def waits(self, connection: Connection, receiver: str, now: Nanoseconds) -> bool:
        """Tell whether a receiver has to be left alone after a failure."""
        query = select(message_receivers.c.retry_at).where(message_receivers.c.name == receiver)
        retry_at = connection.scalar(query)
        return isinstance(retry_at, int) and retry_at > now

    def accepted(self, receiver: str, claimed: ClaimedMessage | None, now: Nanoseconds) -> None:
        """Record that a receiver accepted a message, and forget those of a week ago."""
        with self.ledger.database.writing() as connection:
            if claimed is not None:
                _end(connection, claimed.row, now)
            values = {"failures": 0, "retry_at": 0, "failing_since": None, "error": ""}
            same = message_receivers.c.name == receiver
            connection.execute(update(message_receivers).where(same).values(**values))
            old = (messages.c.receiver == receiver) & (messages.c.ended_at < now - _SENT_ENDS)
            connection.execute(delete(messages).where(old))

    def failed(
        self,
        receiver: str,
        claimed: ClaimedMessage | None,
        error: SendError,
        now: Nanoseconds,
    ) -> None:
        """Record that a receiver did not accept a message, and when the next attempt follows.

        A malformed message delays only itself and later ones of its incident, and ends after a day
        with a note. Any other failure delays all messages of the receiver.
        """
        why = str(error)[:_MAX_ERROR]
        with self.ledger.database.writing() as connection:
            if claimed is not None and error.malformed:
                _postpone_malformed(connection, receiver, claimed, why, now)
                return
            same = message_receivers.c.name == receiver
            row = connection.execute(select(message_receivers).where(same)).first()
            count, since = (0, None) if row is None else (row.failures, row.failing_since)
            failures = min(count + 1, _MAX_COUNT) if isinstance(count, int) else 1
            requested = min(round((error.retry_after or 0) * SECOND), _MAX_RETRY_AFTER)
            retry_at = now + max(backoff(failures), requested)
            since = since if isinstance(since, int) else now
            values = {"failures": failures, "retry_at": retry_at, "failing_since": since}
            connection.execute(update(message_receivers).where(same).values(**values, error=why))
            if claimed is not None:
                again = update(messages).where(messages.c.id == claimed.row)
                connection.execute(again.values(due_at=retry_at))


def read_message(connection: Connection, row: Row[Any], now: Nanoseconds) -> Message | None:
    """Return the message of a row; end it if it is unreadable, so that it stops no other."""
    parsed = iter_readable(
        connection, messages, [row], lambda row: Message.model_validate_json(row.body)
    )
    for _, message in parsed:
        return message
    _end(connection, row.id, now)
    return None


def _names(connection: Connection) -> set[str]:
    names = connection.scalars(select(message_receivers.c.name))
    return {name for name in names if isinstance(name, str)}


def _state(row: Row[Any], waiting: Row[Any] | None, now: Nanoseconds) -> ReceiverState:
    times = [row.failing_since, None if waiting is None else waiting.oldest]
    past = [min(max(time, 0), now) for time in times if isinstance(time, int)]
    count = 0 if waiting is None else waiting.n
    oldest = Nanoseconds(min(past)) if past else None
    return ReceiverState(row.name, count, oldest, row.retry_at, row.error)


def _next(connection: Connection, receiver: str, now: Nanoseconds) -> Row[Any] | None:
    """Return the oldest due message that no earlier one of its incident precedes."""
    earlier = messages.alias("earlier")
    precedes = (
        select(earlier.c.id)
        .where(
            earlier.c.incident == messages.c.incident,
            earlier.c.receiver == receiver,
            earlier.c.ended_at.is_(None),
            earlier.c.id < messages.c.id,
        )
        .exists()
    )
    query = select(messages).where(_unsent(receiver), messages.c.due_at <= now, ~precedes)
    return connection.execute(query.order_by(messages.c.id).limit(1)).first()


def _end(connection: Connection, row: int, now: Nanoseconds) -> None:
    connection.execute(update(messages).where(messages.c.id == row).values(ended_at=now))


def _postpone_malformed(
    connection: Connection, receiver: str, claimed: ClaimedMessage, why: str, now: Nanoseconds
) -> None:
    if now - claimed.at < _MALFORMED_ENDS:
        due = now + backoff(claimed.attempts)
        same = messages.c.id == claimed.row
        connection.execute(update(messages).where(same).values(due_at=due))
        return
    _end(connection, claimed.row, now)
    detail = f"{claimed.message.id} was refused for a day and is dropped: {why}"
    add_note(connection, now=now, who="forewarn", act="messages", target=receiver, detail=detail)
