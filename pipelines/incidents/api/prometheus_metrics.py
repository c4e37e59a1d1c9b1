"""Prometheus metrics of the responder; the number of series does not grow with the fleet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
from forewarn.pipelines.incidents.messages.outbox import Outbox
from forewarn.pipelines.metrics.declarations import (
    ACTING,
    BEAT_AGE,
    BEAT_TIME,
    DECISION_DELAY,
    DECISIONS,
    FINDINGS,
    ISOLATION_DELAY,
    ISOLATIONS,
    LEDGER_UP,
    MESSAGE_AGE,
    OPEN_ACTION_AGE,
    OPEN_ACTIONS,
    OPEN_INCIDENTS,
    OUTCOMES,
    OVERRIDES,
    REFUSED,
    SOURCES,
)
from forewarn.pipelines.metrics.metric_values import Distribution
from forewarn.pipelines.serving.service_metrics import ServiceMetrics
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Ruling

__all__ = ["HEARTBEATS", "RespondMetrics"]

HEARTBEATS: Final = ("loop", "list")
"""Heartbeats in the ledger: the loop leaves one after each round and one after each new list."""

_OUTCOMES: Final = tuple(product(*OUTCOMES.labels.values()))
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
        nothing = Distribution((0,) * (len(ISOLATION_DELAY.bounds) + 1))
        self._no_isolations = dict.fromkeys(keys, nothing)
        self._set_isolations(self._no_isolations)
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
        try:
            self._read(ledger, switch, now)
        except LedgerError:
            self.set(LEDGER_UP, 0)
            self.clear(OPEN_INCIDENTS, OPEN_ACTIONS, OPEN_ACTION_AGE, OUTCOMES)
            self.clear(BEAT_AGE, BEAT_TIME, ACTING)
        else:
            self.set(LEDGER_UP, 1)

    def _read(self, ledger: Ledger, switch: KillSwitch, now: Nanoseconds) -> None:
        open_incidents = count_open_incidents(ledger)
        rulings = {(name,): open_incidents.get(name, 0) for name in (*Ruling, UNDECIDED)}
        open_actions = ledger.open_actions()
        decided = {(r,): n for r, n in self._decisions.read(ledger).items() if r in set(Ruling)}
        heartbeats = {(name,): ledger.last_heartbeat(name) for name in HEARTBEATS}
        isolations = self._no_isolations | count_isolations(ledger)
        overrides, outcomes = count_overrides(ledger), count_outcomes(ledger)
        receivers, acting = Outbox(ledger).states(now), switch.off() is None
        self.replace(OPEN_INCIDENTS, rulings)
        self._set_actions(open_actions, now)
        self.replace(DECISIONS, decided)
        self.replace_distributions(DECISION_DELAY, {(): self._decisions.delays})
        self.replace(BEAT_AGE, {key: _age(at, now) for key, at in heartbeats.items()})
        times = {key: at / SECOND for key, at in heartbeats.items() if at is not None}
        self.replace(BEAT_TIME, times)
        self._set_isolations(isolations)
        waits = {(r.name,): 0.0 if r.oldest is None else _age(r.oldest, now) for r in receivers}
        self.replace(MESSAGE_AGE, waits)
        self.replace(OVERRIDES, {(cause,): n for cause, n in overrides.items()})
        self.replace(OUTCOMES, {labels: outcomes.get(labels, 0) for labels in _OUTCOMES})
        self.set(ACTING, acting)

    def _set_isolations(self, isolations: Mapping[tuple[str, str], Distribution]) -> None:
        self.replace(ISOLATIONS, {key: delays.counts[-1] for key, delays in isolations.items()})
        self.replace_distributions(ISOLATION_DELAY, isolations)

    def _set_actions(self, open_actions: Iterable[Action], now: Nanoseconds) -> None:
        """Set the number of open actions, and the age of the oldest, by state and step."""
        counts = dict.fromkeys(OPEN_ACTIONS.known_labels(), 0)
        ages = dict.fromkeys(OPEN_ACTION_AGE.known_labels(), 0.0)
        for action in open_actions:
            key = (action.state.value, action.step.value)
            counts[key] += 1
            ages[key] = max(ages[key], (now - action.changed_at) / SECOND)
        self.replace(OPEN_ACTIONS, counts)
        self.replace(OPEN_ACTION_AGE, ages)


def _age(at: Nanoseconds | None, now: Nanoseconds) -> float:
    """Return the age of a heartbeat in seconds; infinity, which an alert compares, without one."""
    return math.inf if at is None else max(0, now - at) / SECOND
