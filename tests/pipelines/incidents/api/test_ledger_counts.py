"""Counts of ledger rows, in both databases."""

from __future__ import annotations

from collections.abc import Callable

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.ledger_counts import (
    DecisionCounts,
    count_isolations,
    count_open_incidents,
    count_outcomes,
    count_overrides,
)
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.metrics.metric_values import Distribution
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Outcome
from forewarn.response.state.step import Step

OPENED = Nanoseconds(100 * SECOND)


def act(ledger: Ledger, action: Action, who: str, *states: ActionState) -> None:
    """Record an action and its states, the first 20 s after its incident."""
    recorded = ledger.act(action, lambda _: None, who=who)
    assert isinstance(recorded, Action)
    for number, state in enumerate(states):
        now = Nanoseconds(OPENED + (20 + number) * SECOND)
        recorded = ledger.advance(recorded, state, now=now)
        assert recorded is not None


def test_counts_never_decrease_and_name_author(
    ledger: Ledger,
    finding: Callable[..., Finding],
    decision: Callable[..., Decision],
    action: Callable[..., Action],
) -> None:
    counts, until = DecisionCounts(), 10**12
    machines = ("m1", "m2", "m3", "m4")
    found = [finding(machine=name, at=OPENED, valid_until=until) for name in machines]
    ledger.record_findings(found, now=OPENED)
    for incident in (1, 2):
        ledger.decide(decision(incident, at=OPENED))
    assert counts.read(ledger) == {"propose": 2}
    ledger.decide(decision(2, at=OPENED + 1, ruling=Ruling.ACT))
    assert counts.read(ledger) == {"propose": 2, "act": 1}
    assert count_open_incidents(ledger) == {"propose": 1, "act": 1, "none": 2}
    sent = (ActionState.SENT, ActionState.SENT, ActionState.HOLDING, ActionState.OVERRIDDEN)
    act(ledger, action(1, "m1", at=OPENED), "forewarn", *sent)
    act(ledger, action(2, "m2", at=OPENED), "ann", ActionState.SENT)
    act(ledger, action(3, "m3", at=OPENED), "forewarn", ActionState.EXPIRED)  # never sent
    avoid = action(4, "m4", at=OPENED, step=Step.AVOID, mode=None)
    act(ledger, avoid, "forewarn", ActionState.SENT)
    within_a_minute = Distribution((1,) * 9, 20.0)
    assert count_isolations(ledger) == {
        ("forewarn", "train"): within_a_minute,
        ("person", "train"): within_a_minute,
    }
    assert count_overrides(ledger) == {"certain_damage": 1}


def test_first_decision_of_each_incident_is_timed(
    ledger: Ledger, finding: Callable[..., Finding], decision: Callable[..., Decision]
) -> None:
    counts = DecisionCounts()
    found = [finding(machine=name, at=OPENED, valid_until=10**12) for name in ("m1", "m2")]
    ledger.record_findings(found, now=OPENED)
    assert counts.delays == Distribution((0,) * 8, 0.0)
    for incident, seconds, ruling in ((1, 60, "hold"), (1, 90, "act"), (2, 70, "hold")):
        at = OPENED + seconds * SECOND
        ledger.decide(decision(incident, at=at, ruling=Ruling(ruling)))
        counts.read(ledger)
    assert counts.delays == Distribution((0, 1, 2, 2, 2, 2, 2, 2), 130.0)


def test_newest_outcome_counts_by_fate_of_machine(
    ledger: Ledger,
    finding: Callable[..., Finding],
    decision: Callable[..., Decision],
    action: Callable[..., Action],
) -> None:
    until = Nanoseconds(10**12)
    found = [finding(machine=name, at=OPENED, valid_until=until) for name in ("m1", "m2", "m3")]
    ledger.record_findings(found, now=OPENED)
    ledger.decide(decision(1, at=OPENED, control=True))
    act(ledger, action(2, "m2", at=OPENED), "forewarn", ActionState.SENT)
    for incident in (1, 2, 3):
        ledger.outcome(incident, Outcome.UNKNOWN, now=until, who="ann", why="")
    ledger.outcome(2, Outcome.NOT_CONFIRMED, now=Nanoseconds(until + 1), who="ann", why="")
    assert count_outcomes(ledger) == {
        ("unknown", "holdout"): 1,
        ("not_confirmed", "isolated"): 1,
        ("unknown", "in_service"): 1,
    }
