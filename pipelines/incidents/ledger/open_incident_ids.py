"""Incremental lookup of the open incidents."""

from __future__ import annotations

from sqlalchemy import Connection, func, or_, select

from forewarn.pipelines.incidents.ledger.incident_rows import is_open
from forewarn.pipelines.incidents.ledger.ledger_tables import incidents

__all__ = ["OpenIncidentIds"]

MAX_PARAMETERS = 5_000  # parameters per statement


class OpenIncidentIds:
    """Numbers of the open incidents; each read starts from the previous one.

    Numbers grow in the order in which writers commit, and an ended incident never reopens.
    Therefore an open incident was open at the previous read or is newer. Threads may read
    concurrently: each read is one snapshot, and any of them is a valid start for the next.
    """

    def __init__(self) -> None:
        self._previous: tuple[int, tuple[int, ...]] = (0, ())

    def read(self, connection: Connection) -> list[int]:
        """Return the numbers of the open incidents, oldest first."""
        newest, candidates = self._previous
        column = incidents.c.id
        # Reading some ended incidents is faster than a statement with a parameter per open one.
        dense = bool(candidates) and newest - candidates[0] < 1_000 + 4 * len(candidates)
        if dense or len(candidates) > MAX_PARAMETERS:
            condition = column >= candidates[0]
        else:
            condition = or_(column > newest, column.in_(candidates))
        query = select(column).where(condition, is_open()).order_by(column)
        numbers = list(connection.scalars(query).all())
        self._previous = (connection.scalar(select(func.max(column))) or 0, tuple(numbers))
        return numbers
