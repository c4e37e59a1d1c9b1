"""Counts of rows of the ledger, for metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import accumulate

from sqlalchemy import case, func, select

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
from forewarn.pipelines.metrics.declarations import DECISION_DELAY, ISOLATION_DELAY
from forewarn.pipelines.metrics.metric_values import Distribution
from forewarn.response.policy.cause_group import CauseGroup, cause_group
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


def count_isolations(ledger: Ledger) -> dict[tuple[str, str], Distribution]:
    """Return the delays of isolations sent to the scheduler, by author and pool.

    Delays are in seconds since the incident was opened. Neither decreases: an action that was sent
    stays sent, whatever follows.
    """
    isolating = [step.value for step in Step if step.isolates]
    first, states = action_states.alias("first"), action_states
    sent = select(states.c.action, func.min(states.c.at).label("at"))
    sent_at = sent.where(states.c.state == ActionState.SENT.value).group_by(states.c.action)
    sending = sent_at.subquery("sending")
    by_forewarn = (first.c.who == "forewarn").label("by_forewarn")
    delay = sending.c.at - incidents.c.opened_at
    counts = [
        func.sum(case((delay <= round(bound * SECOND), 1), else_=0))
        for bound in ISOLATION_DELAY.bounds
    ]
    seconds = func.sum(delay / float(SECOND))
    query = (
        select(by_forewarn, actions.c.pool, seconds, *counts, func.count())
        .join(first, (first.c.action == actions.c.id) & (first.c.version == 0))
        .join(sending, sending.c.action == actions.c.id)
        .join(incidents, incidents.c.id == actions.c.incident)
        .where(actions.c.step.in_(isolating))
        .group_by(by_forewarn, actions.c.pool)
    )
    with ledger.database.reading() as connection:
        rows = connection.execute(query).all()
    return {
        ("forewarn" if own else "person", pool): Distribution(
            tuple(map(int, counts)), max(0.0, float(seconds))
        )
        for own, pool, seconds, *counts in rows
    }


def count_overrides(ledger: Ledger) -> Counter[CauseGroup]:
    """Return the number of actions that a manual change undid or replaced, by cause."""
    query = select(actions.c.cause, func.count()).join(action_states)
    query = query.where(action_states.c.state == ActionState.OVERRIDDEN.value)
    counts = Counter[CauseGroup]()
    with ledger.database.reading() as connection:
        for cause, count in connection.execute(query.group_by(actions.c.cause)):
            counts[cause_group(cause)] += count
    return counts


def count_outcomes(ledger: Ledger) -> dict[tuple[str, ...], int]:
    """Return the number of incidents by their newest outcome and what happened to the machine."""
    newest = select(func.max(outcomes.c.id)).group_by(outcomes.c.incident)
    in_holdout = select(decisions.c.id).where(
        decisions.c.incident == outcomes.c.incident, decisions.c.control
    )
    isolating = [step.value for step in Step if step.isolates]
    isolations = (
        select(actions.c.id)
        .join(action_states)
        .where(
            actions.c.incident == outcomes.c.incident,
            actions.c.step.in_(isolating),
            action_states.c.state == ActionState.SENT.value,
        )
    )
    fate = case(
        (in_holdout.exists(), "holdout"), (isolations.exists(), "isolated"), else_="in_service"
    )
    each = select(outcomes.c.outcome, fate.label("fate")).where(outcomes.c.id.in_(newest))
    rows = each.subquery()
    query = select(rows.c.outcome, rows.c.fate, func.count())
    with ledger.database.reading() as connection:
        counted = connection.execute(query.group_by(rows.c.outcome, rows.c.fate)).all()
    return {(str(outcome), str(fate)): count for outcome, fate, count in counted}


class DecisionCounts:
    """Decisions by ruling, and delays of first ones; each call reads only the rows that are new."""

    def __init__(self) -> None:
        self._last, self._counts = 0, Counter[str]()
        self._delays = [0] * (len(DECISION_DELAY.bounds) + 1)
        self._total_delay = 0.0

    @property
    def delays(self) -> Distribution:
        """Seconds from the opening of each incident to its first decision."""
        return Distribution(tuple(accumulate(self._delays)), self._total_delay)

    def read(self, ledger: Ledger) -> Counter[str]:
        """Return the number of decisions by ruling."""
        new = decisions.c.id > self._last
        query = select(decisions.c.ruling, func.count(), func.max(decisions.c.id))
        query = query.where(new).group_by(decisions.c.ruling)
        other = decisions.alias("other")
        earlier = select(other.c.id).where(
            other.c.incident == decisions.c.incident, other.c.id < decisions.c.id
        )
        first = select(decisions.c.at - incidents.c.opened_at).join(incidents)
        with ledger.database.reading() as connection:
            rows = connection.execute(query).all()
            newest = max((last for *_, last in rows), default=self._last)
            first = first.where(new, decisions.c.id <= newest, ~earlier.exists())
            delays = connection.execute(first).scalars().all()
        for delay in delays:
            seconds = max(0.0, delay / SECOND)
            self._delays[bisect_left(DECISION_DELAY.bounds, seconds)] += 1
            self._total_delay += seconds
        for ruling, count, last in rows:
            self._counts[ruling] += count
            self._last = max(self._last, last)
        return self._counts
