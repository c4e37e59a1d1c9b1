"""Counts of rows of the ledger, for metrics."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import func, select

from forewarn.features.time_units import SECOND
from forewarn.pipelines.incidents.ledger.incident_rows import is_open
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import (
    action_states,
    actions,
    decisions,
    incidents,
    outcomes,
)
from forewarn.response.state.action import ActionState
from forewarn.response.state.step import Step

__all__ = [
    "UNDECIDED",
    "DecisionCounts",
    "count_isolations",
    "count_open_incidents",
    "count_outcomes",
    "count_overrides",
]

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


def count_isolations(ledger: Ledger) -> dict[tuple[str, str], tuple[int, float]]:
    """Return isolations sent to the scheduler and the sum of their delays, by author and pool.

    Delays are in seconds since the incident was opened. Neither decreases: an action that was sent
    stays sent, whatever follows.
    """
    isolating = [step.value for step in Step if step.isolates]
    first, states = action_states.alias("first"), action_states
    sent = select(states.c.action, func.min(states.c.at).label("at"))
    sent_at = sent.where(states.c.state == ActionState.SENT.value).group_by(states.c.action)
    sending = sent_at.subquery("sending")
    by_forewarn = (first.c.who == "forewarn").label("by_forewarn")
    delay = func.sum((sending.c.at - incidents.c.opened_at) / float(SECOND))
    query = (
        select(by_forewarn, actions.c.pool, func.count(), delay)
        .join(first, (first.c.action == actions.c.id) & (first.c.version == 0))
        .join(sending, sending.c.action == actions.c.id)
        .join(incidents, incidents.c.id == actions.c.incident)
        .where(actions.c.step.in_(isolating))
        .group_by(by_forewarn, actions.c.pool)
    )
    with ledger.database.reading() as connection:
        rows = connection.execute(query).all()
    return {
        ("forewarn" if own else "person", pool): (count, max(0.0, float(seconds)))
        for own, pool, count, seconds in rows
    }


def count_overrides(ledger: Ledger) -> int:
    """Return the number of actions that a manual change undid or replaced."""
    query = select(func.count()).select_from(action_states)
    with ledger.database.reading() as connection:
        overridden = query.where(action_states.c.state == ActionState.OVERRIDDEN.value)
        return int(connection.scalar(overridden) or 0)


def count_outcomes(ledger: Ledger) -> dict[str, int]:
    """Return the number of outcomes by kind."""
    query = select(outcomes.c.outcome, func.count()).group_by(outcomes.c.outcome)
    with ledger.database.reading() as connection:
        return {str(outcome): count for outcome, count in connection.execute(query).all()}


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
