"""Outcomes of incidents, and releases of machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.response.example_actions import drain

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.follow_up.external_drain import match_failure_pattern
from forewarn.response.follow_up.outcome_assessment import (
    GroundTruth,
    GroundTruthKind,
    OutcomeAssessment,
    ServiceSpan,
    assess_outcome,
)
from forewarn.response.follow_up.release import CheckVerdict, Release, ReleaseMethod, decide_release
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Incident, Outcome
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import Step

START = Nanoseconds(100 * DAY)
END = Nanoseconds(START + DAY)
LATER = Nanoseconds(END + 2 * DAY)
SETTINGS = ResponseSettings()
AT_RISK = Finding(
    source="at_risk",
    id="1",
    kind=FindingKind.AT_RISK,
    cause="at_risk",
    machine="n0",
    at=START,
    valid_until=END,
    gpu_serial="G1",
)
XID = replace(AT_RISK, source="records", id="2", kind=FindingKind.XID, cause="xid 79")
DRAIN = drain(
    START,
    END,
    cause="at_risk",
    changed_at=Nanoseconds(START + HOUR),
    state=ActionState.DRAINED,
)


def at(hour: int) -> Nanoseconds:
    return Nanoseconds(START + hour * HOUR)


TICKET = GroundTruth(GroundTruthKind.TICKET, "n0", at(3), at(30), "G1")


def incident(*findings: Finding, actions: tuple[Action, ...] = ()) -> Incident:
    return Incident(1, "n0", "G1", START, findings=findings or (AT_RISK,), actions=actions)


def hours(*spans: tuple[int, int], in_service: bool = True, busy: bool = True) -> list[ServiceSpan]:
    return [ServiceSpan(at(first), at(last), in_service, busy) for first, last in spans]


def assessed(
    about: Incident, *ground_truth: GroundTruth, now: int = LATER, **options: Any
) -> OutcomeAssessment | None:
    service = options.pop("service", hours((0, 24)))
    return assess_outcome(
        about, ground_truth=ground_truth, service=service, settings=SETTINGS, now=Nanoseconds(now)
    )


# --- outcomes -------------------------------------------------------------------------------------


def test_ticket_confirms_with_its_known_time() -> None:
    assert assessed(incident(), TICKET) == OutcomeAssessment(
        Outcome.CONFIRMED, "confirmed by a ticket", at(3), at(30)
    )


def test_unknown_ticket_confirms_nothing() -> None:
    assert assessed(incident(), TICKET, now=at(29)) is None


@pytest.mark.parametrize(
    "other",
    [
        replace(TICKET, machine="n1"),
        replace(TICKET, gpu_serial="G2"),
        replace(TICKET, at=at(-1)),
        replace(TICKET, at=at(25)),
    ],
    ids=["another machine", "another gpu", "before", "after the horizon"],
)
def test_unrelated_ticket_confirms_nothing(other: GroundTruth) -> None:
    assert assessed(incident(), other) == OutcomeAssessment(
        Outcome.NOT_CONFIRMED, "in service under load without a failure"
    )


def test_ticket_without_gpu_confirms_machine() -> None:
    result = assessed(incident(), replace(TICKET, gpu_serial=None))
    assert result is not None
    assert result.outcome is Outcome.CONFIRMED


@pytest.mark.parametrize("kind", [FindingKind.FAILURE, FindingKind.CHECK])
def test_own_failure_or_failed_check_confirms(kind: FindingKind) -> None:
    evidence = replace(XID, kind=kind, at=at(5), cause=str(kind))
    result = assessed(incident(AT_RISK, evidence))
    assert result is not None
    assert (result.outcome, result.failed_at, result.known_at) == (Outcome.CONFIRMED, at(5), at(5))


def test_outcome_waits_for_horizon_and_delay() -> None:
    assert assessed(incident(), now=END + DAY - 1) is None
    result = assessed(incident(), now=END + DAY)
    assert result is not None
    assert result.outcome is Outcome.NOT_CONFIRMED


@pytest.mark.parametrize(
    ("service", "why"),
    [
        ([*hours((0, 10)), *hours((10, 11), in_service=False), *hours((11, 24))], "out of service"),
        (hours((0, 10), (13, 24)), "not observed"),
        (hours((0, 22)), "not observed"),
        ([], "not observed"),
        ([*hours((0, 12)), *hours((12, 24), busy=False)], "not under load"),
        ([*hours((0, 12), (0, 12)), *hours((12, 24), busy=False)], "not under load"),
    ],
)
def test_partial_service_is_unknown(service: list[ServiceSpan], why: str) -> None:
    result = assessed(incident(), service=service)
    assert result is not None
    assert result.outcome is Outcome.UNKNOWN
    assert why in result.why


def test_short_gaps_count_as_in_service() -> None:
    service = [*hours((0, 20)), *hours((21, 24), busy=False)]
    result = assessed(incident(), service=service)
    assert result is not None
    assert result.outcome is Outcome.NOT_CONFIRMED


def test_drained_machine_is_unknown() -> None:
    back = replace(DRAIN, state=ActionState.RELEASED, changed_at=at(30))
    result = assessed(incident(actions=(back,)))
    assert result == OutcomeAssessment(Outcome.UNKNOWN, "unknown: the machine was drained")
    undone = replace(back, state=ActionState.OVERRIDDEN, changed_at=at(2))
    result = assessed(incident(actions=(undone,)))
    assert result is not None
    assert result.outcome is Outcome.UNKNOWN


def test_ground_truth_counts_while_drained() -> None:
    late = replace(TICKET, kind=GroundTruthKind.CHECK, at=at(60), known_at=at(60))
    assert assessed(incident(actions=(DRAIN,))) is None
    result = assessed(incident(actions=(DRAIN,)), late)
    assert result is not None
    assert result.outcome is Outcome.CONFIRMED


@pytest.mark.parametrize("state", [ActionState.FAILED, ActionState.EXPIRED])
def test_unstarted_action_leaves_machine_in_service(state: ActionState) -> None:
    result = assessed(incident(actions=(replace(DRAIN, state=state),)))
    assert result is not None
    assert result.outcome is Outcome.NOT_CONFIRMED


def test_incident_without_prediction_is_never_wrong() -> None:
    result = assessed(incident(XID))
    assert result is not None
    assert result.outcome is Outcome.UNKNOWN


# --- release --------------------------------------------------------------------------------------


def released(action: Action, *findings: Finding, now: int = END, **options: Any) -> Release | None:
    settings = ResponseSettings(keep_drained=options.pop("keep_drained", False))
    check = options.pop("check", None)
    about = incident(*findings, actions=(action,))
    return decide_release(action, about, check=check, settings=settings, now=Nanoseconds(now))


def test_avoided_machine_is_released_after_findings_expire() -> None:
    avoid = replace(DRAIN, step=Step.AVOID, mode=None, state=ActionState.HOLDING)
    assert released(avoid, now=END - 1) is None
    assert released(avoid) == Release(ReleaseMethod.UNDO, "the reason to avoid it is over")
    newer = replace(AT_RISK, id="3", valid_until=LATER)
    assert released(avoid, AT_RISK, newer) is None


def test_drained_machine_is_checked_before_return() -> None:
    words = "no failure within the horizon of the prediction"
    assert released(DRAIN, now=END - 1) is None
    first = released(DRAIN)
    assert first == Release(
        ReleaseMethod.CHECK, f"{words}: the site's check runs before its return"
    )
    before = CheckVerdict(passed=True, at=START)
    assert released(DRAIN, check=before) == first
    passed, failed = (CheckVerdict(passed=value, at=END) for value in (True, False))
    assert released(DRAIN, check=passed) == Release(
        ReleaseMethod.UNDO, f"{words}: the check passed"
    )
    assert released(DRAIN, check=failed) == Release(
        ReleaseMethod.KEEP, f"{words}: the check failed, a person has to look"
    )


def test_busy_machine_needs_no_check() -> None:
    draining = replace(DRAIN, state=ActionState.HOLDING)
    result = released(draining)
    assert result is not None
    assert result.way is ReleaseMethod.UNDO


def test_site_may_keep_unconfirmed_machines_drained() -> None:
    result = released(DRAIN, keep_drained=True, check=CheckVerdict(passed=True, at=END))
    assert result is not None
    assert result.way is ReleaseMethod.KEEP


def test_person_returns_machine_with_failed_gpu() -> None:
    hard = replace(DRAIN, cause="xid 79", step=Step.REPLACE)
    assert released(hard, XID, now=LATER) is None
    failure = replace(XID, kind=FindingKind.FAILURE, cause="failure")
    assert released(DRAIN, AT_RISK, failure, now=LATER) is None


def test_check_step_releases_after_check() -> None:
    step = replace(DRAIN, cause="xid 79", step=Step.CHECK)
    result = released(step, XID, now=at(2))
    assert result is not None
    assert result.way is ReleaseMethod.CHECK
    result = released(step, XID, now=at(2), check=CheckVerdict(passed=True, at=at(2)))
    assert result is not None
    assert result.way is ReleaseMethod.UNDO
    assert released(replace(step, state=ActionState.HOLDING), XID, now=at(2)) is None


@pytest.mark.parametrize(
    "state", [ActionState.INTENDED, ActionState.SENT, ActionState.RELEASING, ActionState.RELEASED]
)
def test_only_confirmed_actions_are_released(state: ActionState) -> None:
    assert released(replace(DRAIN, state=state), now=LATER) is None


# --- external drains ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "pattern"),
    [
        ("GPU 3 fell off the bus", "*gpu*"),
        ("bad NVLink", "*nvlink*"),
        ("firmware update", None),
        ("", None),
        ("x" * 2000 + "gpu", None),
    ],
)
def test_drain_reason_classifies_failure(reason: str, pattern: str | None) -> None:
    assert match_failure_pattern(reason, ["*nvlink*", "*gpu*"]) == pattern


@pytest.mark.parametrize(
    "evil", ["*a" * 99 + "*b", "(a+)+$", "[!b]*" * 30 + "c", "*" * 200, "[z-a]"]
)
def test_slow_patterns_do_not_hang(evil: str) -> None:
    assert match_failure_pattern("a" * 1000, [evil]) in (None, "*" * 200)


def test_pattern_length_is_bounded() -> None:
    with pytest.raises(ValueError, match="201 characters, expected at most 200"):
        match_failure_pattern("gpu", ["*" * 201])
