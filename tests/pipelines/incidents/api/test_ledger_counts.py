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
    assert count_isolations(ledger) == {
        ("forewarn", "train"): (1, 20),
        ("person", "train"): (1, 20),
    }
    assert count_overrides(ledger) == 1
    ledger.outcome(1, Outcome.CONFIRMED, now=Nanoseconds(until), who="ann", why="ticket")
    assert count_outcomes(ledger) == {"confirmed": 1}
