"""Which incidents are open, without a look at all that ever were."""

from __future__ import annotations

from sqlalchemy import Connection, func, or_, select

from forewarn.pipelines.incidents.ledger.incident_rows import is_open
from forewarn.pipelines.incidents.ledger.ledger_tables import incidents

__all__ = ["OpenIncidentIds"]

MAX_PARAMETERS = 5_000  # parameters of one statement


class OpenIncidentIds:
    """Numbers of the open incidents; each look goes on from the one before.

    Numbers grow in the order in which writers commit, and what has ended does not open again. So
    an incident is open now only if it was open at the last look, or is newer. Threads may look at
    the same time: each look is of one moment, and whichever is kept last is a valid start.
    """

    def __init__(self) -> None:
        self._last: tuple[int, tuple[int, ...]] = (0, ())

    def read(self, connection: Connection) -> list[int]:
        """Return the numbers, oldest first."""
        newest, candidates = self._last
        column = incidents.c.id
        # A look at some that have ended is faster than a statement with a number for each open one.
        dense = bool(candidates) and newest - candidates[0] < 1_000 + 4 * len(candidates)
        if dense or len(candidates) > MAX_PARAMETERS:
            condition = column >= candidates[0]
        else:
            condition = or_(column > newest, column.in_(candidates))
        query = select(column).where(condition, is_open()).order_by(column)
        numbers = list(connection.scalars(query).all())
        self._last = (connection.scalar(select(func.max(column))) or 0, tuple(numbers))
        return numbers
