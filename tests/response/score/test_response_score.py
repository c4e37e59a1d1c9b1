"""Score of the response, with numbers small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import pytest
from tests.response.example_actions import drain

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.response.score.response_score import (
    MIN_JUDGED_ALERTS,
    JobStopCosts,
    KnownFailure,
    ResponseScore,
    score_response,
)
from forewarn.response.score.scored_alert import ScoredAlert, summarize_incident
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident, Outcome
from forewarn.response.state.step import DrainMode, Step

START = Nanoseconds(100 * DAY)
ALERT = ScoredAlert(
    machine="n0",
    gpu_serial="G0",
    at=START,
    horizon=Nanoseconds(START + DAY),
    predicted=True,
    left_alone=None,
    outcome=None,
    gpus=8,
    job_gpus=64,
)
# An unplanned stop costs 5 + 5 + 20 + 60 / 2 minutes, a planned one 12: 0.8 h less.
COSTS = JobStopCosts(
    detection=Nanoseconds(5 * MINUTE),
    scheduling=Nanoseconds(5 * MINUTE),
    start=Nanoseconds(20 * MINUTE),
    checkpoint=HOUR,
    planned_restart=Nanoseconds(12 * MINUTE),
)


def at(hour: float) -> Nanoseconds:
    return Nanoseconds(START + round(hour * HOUR))


def alone(number: int, outcome: Outcome | None, chance: float = 0.1, **changes: Any) -> ScoredAlert:
    name = f"n{number}"
    return replace(ALERT, machine=name, left_alone=chance, outcome=outcome, **changes)


def drained(number: int, **changes: Any) -> ScoredAlert:
    values: dict[str, Any] = {"isolated_at": at(1), "emptied_at": at(3), "back_at": at(25)}
    return replace(ALERT, machine=f"n{number}", **{**values, **changes})


def scored(
    alerts: list[ScoredAlert], failures: tuple[KnownFailure, ...] = (), days: int = 10
) -> ResponseScore:
    now = Nanoseconds(START + days * DAY)
    return score_response(alerts, failures, costs=COSTS, since=START, now=now)


# --- precision ------------------------------------------------------------------------------------


def test_precision_uses_holdout_only() -> None:
    left = [alone(n, Outcome.CONFIRMED) for n in range(2)]
    left += [alone(n, Outcome.NOT_CONFIRMED) for n in range(2, 10)]
    acted = [drained(n, outcome=Outcome.CONFIRMED) for n in range(10, 14)]
    result = scored([*left, *acted])
    assert result.precision.value == 0.2
    assert result.apparent_precision.value == 1.0
    assert (result.left_alone, result.judged) == (10, 10)
    assert result.precision.interval is not None
    low, high = result.precision.interval
    assert 0.0 <= low < 0.2 < high <= 0.6


def test_rare_holdout_alerts_weigh_more() -> None:
    left = [alone(0, Outcome.CONFIRMED, 0.1), alone(1, Outcome.NOT_CONFIRMED, 0.5)]
    assert scored(left).precision.value == pytest.approx(10 / 12)


@pytest.mark.parametrize("number", [1, 4])
def test_equal_outcomes_tell_no_interval(number: int) -> None:
    result = scored([alone(n, Outcome.CONFIRMED) for n in range(number)])
    assert (result.precision.value, result.precision.interval) == (1.0, None)


def test_precision_without_holdout_is_unknown() -> None:
    result = scored([drained(n, outcome=Outcome.CONFIRMED) for n in range(5)])
    assert result.precision.value is None
    assert result.precision.why.startswith("no alert was left alone")
    assert (
        scored([alone(1, None)]).precision.why == "no alert that was left alone has an outcome yet"
    )
    assert result.days_to_answer is None
    assert (result.gpu_hours_saved.value, result.gpu_hours_net.value) == (None, None)
    assert result.gpu_hours_isolated.value == 5 * 8 * 24


def test_unknown_outcomes_do_not_count() -> None:
    left = [alone(0, Outcome.CONFIRMED), alone(1, Outcome.UNKNOWN), alone(2, None)]
    result = scored(left)
    assert (result.precision.value, result.left_alone, result.judged) == (1.0, 3, 1)


@pytest.mark.parametrize(
    ("judged", "open_", "days", "answer"),
    [(15, 0, 10, 30.0), (0, 6, 10, 100.0), (60, 0, 10, 0.0), (0, 0, 10, None)],
)
def test_days_to_answer_follow_current_rate(
    judged: int, open_: int, days: int, answer: float | None
) -> None:
    left = [alone(n, Outcome.NOT_CONFIRMED) for n in range(judged)]
    left += [alone(n, None) for n in range(100, 100 + open_)]
    assert scored(left, days=days).days_to_answer == answer


def test_sixty_alerts_separate_twenty_from_ten_percent() -> None:
    def more_than_ten(precision: float) -> float:
        return sum(
            comb(MIN_JUDGED_ALERTS, hits)
            * precision**hits
            * (1 - precision) ** (MIN_JUDGED_ALERTS - hits)
            for hits in range(11, MIN_JUDGED_ALERTS + 1)
        )

    assert more_than_ten(0.1) == pytest.approx(0.034, abs=0.001)
    assert more_than_ten(0.2) == pytest.approx(0.677, abs=0.001)


# --- failures and minutes -------------------------------------------------------------------------


def test_failure_without_valid_finding_is_missed() -> None:
    failures = (
        KnownFailure("n0", at(5), "G0"),
        KnownFailure("n0", at(5), "G1"),
        KnownFailure("n0", at(25), "G0"),
        KnownFailure("n0", at(0), "G0"),
        KnownFailure("n1", at(5)),
        KnownFailure("n0", at(6)),
    )
    result = scored([ALERT], failures)
    assert (result.failures, result.missed) == (6, 4)
    assert result.missed_share.value == pytest.approx(4 / 6)


def test_minutes_to_isolation_is_median() -> None:
    alerts = [drained(n, isolated_at=at(hours)) for n, hours in enumerate((0.25, 1, 10))]
    assert scored(alerts).minutes_to_isolation.value == 60.0
    assert scored([ALERT]).minutes_to_isolation.value is None


# --- GPU-hours ------------------------------------------------------------------------------------


def test_gpu_hours_scale_with_failure_rate() -> None:
    assert COSTS.hours_saved == pytest.approx(0.8)
    left = [alone(0, Outcome.CONFIRMED, failed_at=at(10)), alone(1, Outcome.NOT_CONFIRMED)]
    result = scored([*left, drained(2), drained(3)])
    assert result.gpu_hours_saved.value == pytest.approx(2 * 64 * 0.8 * 0.5)
    assert result.gpu_hours_isolated.value == 2 * 8 * 24
    assert result.gpu_hours_net.value == pytest.approx(51.2 - 384)


def test_late_drain_saves_later_failures_only() -> None:
    left = [alone(0, Outcome.CONFIRMED, failed_at=at(2)), alone(1, Outcome.CONFIRMED)]
    result = scored([*left, drained(2)])
    assert result.gpu_hours_saved.value == pytest.approx(64 * 0.8 * 0.5)


def test_undrained_machine_saves_nothing() -> None:
    left = [alone(0, Outcome.CONFIRMED)]
    result = scored([*left, drained(2, emptied_at=None, back_at=None)], days=1)
    assert result.gpu_hours_saved.value == 0.0
    assert result.gpu_hours_isolated.value == 8 * 23


def test_failed_machines_are_no_prediction_cost() -> None:
    assert scored([drained(0, predicted=False)]).gpu_hours_isolated.value == 0.0


def test_alerts_of_one_machine_are_resampled_together() -> None:
    spread = [alone(n, Outcome.CONFIRMED if n % 2 else Outcome.NOT_CONFIRMED) for n in range(40)]
    few = [replace(alert, machine=f"n{n % 2}") for n, alert in enumerate(spread)]
    widths = []
    for alerts in (spread, few):
        interval = scored(alerts).precision.interval
        assert interval is not None
        widths.append(interval[1] - interval[0])
    assert widths[1] == 1.0
    assert widths[0] < 0.4


# --- from the ledger ------------------------------------------------------------------------------


AT_RISK = Finding(
    "at_risk", "1", FindingKind.AT_RISK, "at_risk", "n0", START, Nanoseconds(START + DAY)
)
XID = replace(AT_RISK, source="records", id="2", kind=FindingKind.XID, cause="xid 79")
DECISION = Decision(
    incident=1,
    at=START,
    ruling=Ruling.ACT,
    step=Step.DRAIN,
    mode=DrainMode.FINISH,
    severity=Severity.WARNING,
    reason="",
    until=None,
    valid_until=Nanoseconds(START + DAY),
    findings=(AT_RISK.key,),
    policy_version="p1",
)
ACTION = drain(START, Nanoseconds(START + DAY), cause="at_risk", state=ActionState.RELEASED)


def alert(*decisions: Decision, actions: tuple[Action, ...] = ()) -> ScoredAlert:
    about = Incident(1, "n0", None, START, findings=(AT_RISK, XID), actions=actions)
    moments = {
        17: {
            ActionState.HOLDING: at(1),
            ActionState.DRAINED: at(2),
            ActionState.RELEASED: at(30),
        }
    }
    return summarize_incident(about, decisions, moments)


def test_alert_times_come_from_action_states() -> None:
    result = alert(DECISION, actions=(ACTION,))
    assert (result.isolated_at, result.emptied_at, result.back_at) == (at(1), at(2), at(30))
    assert (result.predicted, result.left_alone) == (True, None)


def test_holdout_survives_later_drain() -> None:
    control = replace(DECISION, ruling=Ruling.OBSERVE, control=True, propensity=0.1)
    assert alert(control, actions=(ACTION,)).left_alone == 0.1


def test_observe_mode_leaves_all_in_service() -> None:
    observed = replace(DECISION, ruling=Ruling.OBSERVE, propensity=1.0)
    assert alert(observed).left_alone == 1.0
    assert alert(observed, actions=(ACTION,)).left_alone is None


def test_unassigned_alert_is_not_in_holdout() -> None:
    assert alert(replace(DECISION, propensity=0.1)).left_alone is None


def test_drain_for_failure_is_no_prediction() -> None:
    more = replace(DECISION, findings=(AT_RISK.key, XID.key))
    assert alert(more).predicted is False
