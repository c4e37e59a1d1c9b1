"""Prometheus metrics of the responder; the number of series does not grow with the fleet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import Final

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.ledger_counts import (
    UNDECIDED,
    DecisionCounts,
    count_isolations,
    count_open_incidents,
    count_outcomes,
    count_overrides,
)
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.kill_switch import KillSwitch
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import RecordedCounts
from forewarn.pipelines.metrics.declarations import (
    ACTING,
    BEAT_AGE,
    BEAT_TIME,
    DECISIONS,
    FINDINGS,
    ISOLATION_DELAY,
    ISOLATIONS,
    LEDGER_UP,
    MESSAGE_AGE,
    OPEN_ACTIONS,
    OPEN_INCIDENTS,
    OUTCOMES,
    OVERRIDES,
    REFUSED,
    SOURCES,
)
from forewarn.pipelines.runtime.alerts import oldest_unsent_seconds
from forewarn.pipelines.serving.service_metrics import ServiceMetrics
from forewarn.response.state.action import ENDED_STATES, ActionState
from forewarn.response.state.decision import Ruling
from forewarn.response.state.incident import Outcome

__all__ = ["HEARTBEATS", "RespondMetrics"]

HEARTBEATS: Final = ("loop", "list")
"""Heartbeats in the ledger: the loop leaves one after each round and one after each new list."""

_CACHE_NS: Final = 5 * SECOND  # nanoseconds; bounds the load of scrapes on the ledger


class RespondMetrics(ServiceMetrics):
    """Metrics of the API, of the ledger and, in the same process, of the loop.

    Parameters
    ----------
    pools : iterable of str
        Configured pools, whose counters begin at 0.
    """

    def __init__(self, pools: Iterable[str] = ()) -> None:
        super().__init__(SOURCES["respond"], REFUSED)
        self._read_at = -_CACHE_NS
        self._decisions = DecisionCounts()
        keys = product(ISOLATIONS.labels["by"], pools)
        self._no_isolations: dict[tuple[str, str], tuple[int, float]] = dict.fromkeys(
            keys, (0, 0.0)
        )
        self.replace(ISOLATIONS, dict.fromkeys(self._no_isolations, 0))
        self.replace(ISOLATION_DELAY, dict.fromkeys(self._no_isolations, 0))
        self.set(LEDGER_UP, 0)

    def count_findings(self, counts: RecordedCounts) -> None:
        """Count recorded findings."""
        self.add(FINDINGS, counts.new, "no")
        self.add(FINDINGS, counts.repeated, "yes")

    def read(self, ledger: Ledger, switch: KillSwitch, now: Nanoseconds) -> None:
        """Read the ledger; if it does not answer, its gauges end and `ledger_up` becomes 0.

        Counters keep their last value.
        """
        if 0 <= now - self._read_at < _CACHE_NS:
            return
        self._read_at = now
        self.set(MESSAGE_AGE, oldest_unsent_seconds(), "webhook")
        try:
            self._read(ledger, switch, now)
        except LedgerError:
            self.set(LEDGER_UP, 0)
            self.clear(OPEN_INCIDENTS, OPEN_ACTIONS, OUTCOMES, BEAT_AGE, BEAT_TIME, ACTING)
        else:
            self.set(LEDGER_UP, 1)

    def _read(self, ledger: Ledger, switch: KillSwitch, now: Nanoseconds) -> None:
        open_incidents = count_open_incidents(ledger)
        rulings = {(name,): open_incidents.get(name, 0) for name in (*Ruling, UNDECIDED)}
        states = Counter(action.state for action in ledger.open_actions())
        open_states = {(s,): states[s] for s in ActionState if s not in ENDED_STATES}
        decided = {(r,): n for r, n in self._decisions.read(ledger).items() if r in set(Ruling)}
        heartbeats = {(name,): ledger.last_heartbeat(name) for name in HEARTBEATS}
        isolations = self._no_isolations | count_isolations(ledger)
        overrides, outcomes = count_overrides(ledger), count_outcomes(ledger)
        acting = switch.off() is None
        self.replace(OPEN_INCIDENTS, rulings)
        self.replace(OPEN_ACTIONS, open_states)
        self.replace(DECISIONS, decided)
        self.replace(BEAT_AGE, {key: _age(at, now) for key, at in heartbeats.items()})
        times = {key: at / SECOND for key, at in heartbeats.items() if at is not None}
        self.replace(BEAT_TIME, times)
        self.replace(ISOLATIONS, {key: count for key, (count, _) in isolations.items()})
        self.replace(ISOLATION_DELAY, {key: delay for key, (_, delay) in isolations.items()})
        self.set(OVERRIDES, overrides)
        self.replace(OUTCOMES, {(kind,): outcomes.get(kind, 0) for kind in Outcome})
        self.set(ACTING, acting)


def _age(at: Nanoseconds | None, now: Nanoseconds) -> float:
    """Return the age of a heartbeat in seconds; infinity, which an alert compares, without one."""
    return math.inf if at is None else max(0, now - at) / SECOND
