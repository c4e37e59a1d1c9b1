"""Terms of the lease under which responders write; a later one ends the writes of all earlier."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, func, insert, select

from forewarn.pipelines.incidents.ledger.ledger_tables import beats

__all__ = ["last_term", "record_term"]

_TERM: Final = "term"  # of the heartbeats, with the term in the place of a time


def last_term(connection: Connection) -> int:
    """Return the greatest term that has written; 0 for none."""
    return connection.scalar(select(func.max(beats.c.at)).where(beats.c.name == _TERM)) or 0


def record_term(connection: Connection, term: int) -> int:
    """Record the term of a writer; return the greatest one, which is greater for a stale writer."""
    last = last_term(connection)
    if last < term:
        connection.execute(insert(beats).values(name=_TERM, at=term))
    return max(last, term)
