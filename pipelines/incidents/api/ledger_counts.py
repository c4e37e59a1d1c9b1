"""Counts of rows of the ledger, for metrics."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import func, select

from forewarn.pipelines.incidents.ledger.incident_rows import is_open
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import (
    action_states,
    actions,
    decisions,
    incidents,
)
from forewarn.response.state.action import ActionState
from forewarn.response.state.step import Step

__all__ = ["UNDECIDED", "DecisionCounts", "count_isolations", "count_open_incidents"]

UNDECIDED = "none"


def count_open_incidents(ledger: Ledger) -> dict[str, int]:
    """Return the number of open incidents by their last ruling."""
    last = select(decisions.c.ruling).where(decisions.c.incident == incidents.c.id)
    last = last.order_by(decisions.c.id.desc()).limit(1).correlate(incidents)
    ruling = func.coalesce(last.scalar_subquery(), UNDECIDED).label("ruling")
    each = select(ruling).select_from(incidents).where(is_open()).subquery()
    query = select(each.c.ruling, func.count()).group_by(each.c.ruling)
    with ledger.database.reading() as connection:
        rows = connection.execute(query).all()
    return {str(row[0]): row[1] for row in rows}


def count_isolations(ledger: Ledger) -> dict[tuple[str, str], int]:
    """Return the number of isolations sent to the scheduler, by who decided and by pool.

    It never decreases: an action that was sent stays sent, whatever follows.
    """
    isolating = [step.value for step in Step if step.isolates]
    first = action_states.alias("first")
    sent = select(action_states.c.action).where(action_states.c.state == ActionState.SENT.value)
    by_forewarn = (first.c.who == "forewarn").label("by_forewarn")
    query = (
        select(by_forewarn, actions.c.pool, func.count())
        .join(first, (first.c.action == actions.c.id) & (first.c.version == 0))
        .where(actions.c.step.in_(isolating), actions.c.id.in_(sent))
        .group_by(by_forewarn, actions.c.pool)
    )
    with ledger.database.reading() as connection:
        rows = connection.execute(query).all()
    return {("forewarn" if own else "person", pool): count for own, pool, count in rows}


class DecisionCounts:
    """Decisions by ruling; each call reads only the rows that are new."""

    def __init__(self) -> None:
        self._last, self._counts = 0, Counter[str]()

    def read(self, ledger: Ledger) -> Counter[str]:
        """Return the number of decisions by ruling."""
        query = select(decisions.c.ruling, func.count(), func.max(decisions.c.id))
        query = query.where(decisions.c.id > self._last).group_by(decisions.c.ruling)
        with ledger.database.reading() as connection:
            rows = connection.execute(query).all()
        for ruling, count, last in rows:
            self._counts[ruling] += count
            self._last = max(self._last, last)
        return self._counts
