"""Leader election: of several responders, one runs the loop."""

from __future__ import annotations

from typing import Protocol

from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.progress import note

__all__ = ["TermLease", "lead"]


class TermLease(Protocol):
    """A lease that at most one process holds, with terms that increase."""

    @property
    def holder(self) -> str:
        """Return who held it at the last call of `acquire` that failed."""
        ...

    def acquire(self, after: int) -> int | None:
        """Take or renew the lease; return its term, greater than or equal to `after`, or None."""
        ...


def lead(lease: TermLease, ledger: Ledger) -> bool:
    """Take or renew the lease before a round, and tell whether this process holds it.

    All writes of the ledger carry the term from then on. A round that outlasts the lease is refused
    at its next write, because another responder with a later term has written.

    Raises
    ------
    LedgerError
        If the ledger does not answer.
    DriverError
        If the server of the lease does not answer or refuses.
    """
    database = ledger.database
    database.term = None
    term = lease.acquire(database.last_term())
    if term is None:
        note(f"standing by: {lease.holder or 'another responder'} holds the lease")
        return False
    database.term = term
    with database.writing():  # from here on, writes of earlier terms are refused
        pass
    return True
