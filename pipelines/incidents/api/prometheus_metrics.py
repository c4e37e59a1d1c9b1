"""Prometheus metrics of the API; the number of series does not grow with the fleet."""

from __future__ import annotations

import math
from collections import Counter
from typing import Final

from sqlalchemy import func, select

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.incident_rows import is_open
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import RecordedCounts
from forewarn.pipelines.incidents.ledger.ledger_tables import decisions, incidents
from forewarn.pipelines.incidents.ledger.step_changes import longest_wait, read_requests
from forewarn.pipelines.serving.service_metrics import ServiceMetrics
from forewarn.response.state.action import ENDED_STATES, ActionState
from forewarn.response.state.decision import Ruling

__all__ = ["HEARTBEATS", "ApiMetrics"]

HEARTBEATS: Final = ("loop", "list")
"""Heartbeats in the ledger: the loop leaves one after each round and one after each new list."""

_UNDECIDED: Final = "none"
_CACHE_NS: Final = 5 * SECOND  # nanoseconds; bounds the load of scrapes on the ledger


class ApiMetrics(ServiceMetrics):
    """Counters and gauges of the API."""

    def __init__(self) -> None:
        super().__init__("forewarn_respond")
        self._findings = self.counter("findings", "Findings recorded over the API.", ["known"])
        self._incidents = self.gauges(
            "open_incidents", "Open incidents, by their last ruling.", "ruling"
        )
        self._actions = self.gauges("open_actions", "Actions that have not ended.", "state")
        self._ages = self.gauges(
            "beat_age_seconds",
            "Age of the last round of the loop and of the last list; +Inf if there was none.",
            "beat",
        )
        self._wait = 0.0
        self.gauge(
            "person_wait_seconds",
            "Longest time that a drained machine has waited for a person to take its step.",
            lambda: self._wait,
        )
        self._ledger, self._read_at = 0.0, -_CACHE_NS
        self.gauge("ledger_up", "1 if the ledger answers.", lambda: self._ledger)

    def count_findings(self, counts: RecordedCounts) -> None:
        """Count recorded findings."""
        self._findings.labels("no").inc(counts.new)
        self._findings.labels("yes").inc(counts.repeated)

    def read(self, ledger: Ledger, now: Nanoseconds) -> None:
        """Update the gauges; if the ledger does not answer, clear them and set `ledger_up` to 0."""
        if 0 <= now - self._read_at < _CACHE_NS:
            return
        self._read_at = now
        try:
            rulings, states = _rulings(ledger), Counter(a.state for a in ledger.open_actions())
            wait = longest_wait(read_requests(ledger), now)
            heartbeats = {name: ledger.last_heartbeat(name) for name in HEARTBEATS}
        except LedgerError:
            self._ledger, self._wait = 0.0, math.nan
            for gauges in (self._incidents, self._actions, self._ages):
                gauges.clear()
            return
        self._ledger, self._wait = 1.0, wait / SECOND
        for ruling in (*Ruling, _UNDECIDED):
            self._incidents.labels(str(ruling)).set(rulings.get(str(ruling), 0))
        for state in ActionState:
            if state not in ENDED_STATES:
                self._actions.labels(str(state)).set(states[state])
        for name, at in heartbeats.items():
            # Infinity rather than a missing series: an alert rule compares the age with a limit.
            self._ages.labels(name).set(math.inf if at is None else max(0, now - at) / SECOND)


def _rulings(ledger: Ledger) -> dict[str, int]:
    """Count the open incidents by their last ruling."""
    last = select(decisions.c.ruling).where(decisions.c.incident == incidents.c.id)
    last = last.order_by(decisions.c.id.desc()).limit(1).correlate(incidents)
    ruling = func.coalesce(last.scalar_subquery(), _UNDECIDED).label("ruling")
    each = select(ruling).select_from(incidents).where(is_open()).subquery()
    query = select(each.c.ruling, func.count()).group_by(each.c.ruling)
    with ledger.database.reading() as connection:
        rows = connection.execute(query).all()
    return {str(row[0]): row[1] for row in rows}
