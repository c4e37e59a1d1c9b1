"""Rules of a decision, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.response.decision.decide import decide, make_action
from forewarn.response.decision.interlocks import Interlock
from forewarn.response.decision.manual_override import Override
from forewarn.response.decision.situation import Approval, Situation, group_by_machine
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.pool import Limits, Pool, PoolMode
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import DrainMode, Step

NOW = Nanoseconds(100 * DAY)
_LADDER = {
    Severity.NOTICE: Step.TELL,
    Severity.WARNING: Step.AVOID,
    Severity.ERROR: Step.DRAIN,
    Severity.CRITICAL: Step.REPLACE,
}


@dataclass(frozen=True)
class PlainRule:
    severity: Severity
    max_age: Nanoseconds = DAY
    at_most: Step = Step.REPLACE


@dataclass(frozen=True)
class PlainChoice:
    severity: Severity
    step: Step
    mode: DrainMode | None
    reason: str
    findings: tuple[Finding, ...]
    needs_person: bool = False


@dataclass(frozen=True)
class PlainPolicy:
    """The most severe finding decides; `xid 13` is an application error."""

    version: str = "p1"
    mode: DrainMode = DrainMode.DEADLINE
    needs_person: bool = False
    causes: dict[str, Severity] = field(default_factory=dict)

    def rule(self, finding: Finding) -> PlainRule:
        severity = self.causes.get(finding.cause, finding.severity or Severity.ERROR)
        at_most = Step.AVOID if finding.cause == "xid 13" else Step.REPLACE
        return PlainRule(severity, at_most=at_most)

    def step_for(
        self,
        incident: Incident,
        other_incidents: Sequence[Incident],  # noqa: ARG002
        earlier: Sequence[Action],  # noqa: ARG002
        now: Nanoseconds,  # noqa: ARG002
    ) -> PlainChoice:
        severities = [self.rule(finding).severity for finding in incident.findings]
        gravest = max(severities, key=lambda severity: severity.rank)
        asking = tuple(f for f in incident.findings if self.rule(f).severity is gravest)
        step = _LADDER[gravest]
        mode = self.mode if step.isolates else None
        reason = f"{asking[0].cause}: {step}"
        return PlainChoice(gravest, step, mode, reason, asking, self.needs_person)


def finding(cause: str = "xid 79", kind: FindingKind = FindingKind.XID, **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "source": "records",
        "id": cause,
        "machine": "n0",
        "at": Nanoseconds(NOW - HOUR),
        "valid_until": Nanoseconds(NOW + HOUR),
        **changes,
    }
    return Finding(kind=kind, cause=cause, **values)


AT_RISK = finding("at_risk", FindingKind.AT_RISK, model_version="m1")
XID = finding()
UNCERTAIN = finding("xid 119")
VERDICT = finding("verdict", FindingKind.VERDICT, job="4711", model_version="d1")
MACHINE = Machine("n0", ServiceState.IN_SERVICE, gpus=8, pool="train")


def incident(*findings: Finding, **changes: Any) -> Incident:
    opened = Nanoseconds(NOW - HOUR)
    return Incident(1, "n0", None, opened, findings=findings, **changes)


def machines(**changes: Any) -> dict[str, Machine]:
    others = (replace(MACHINE, name=f"n{number}") for number in range(1, 50))
    return {m.name: m for m in (replace(MACHINE, **changes), *others)}


def drained_by_us(*numbers: int) -> dict[str, Machine]:
    """Return machines that forewarn has had drained for days."""
    out = replace(MACHINE, state=ServiceState.DRAINED, reason_at=Nanoseconds(NOW - 9 * DAY))
    return {f"n{n}": replace(out, name=f"n{n}", reason=f"forewarn:{n} x") for n in numbers}


def situation(mode: PoolMode = PoolMode.ACT, control: float = 0.0, **changes: Any) -> Situation:
    values: dict[str, Any] = {
        "now": NOW,
        "fleet": machines(),
        "pools": {"train": Pool("train", mode, control, Limits(share=0.04))},
        "policy": PlainPolicy(),
        **changes,
    }
    return Situation(**values)


def decided(about: Incident, **changes: Any) -> Decision:
    return decide(about, situation(**changes))


def drain(number: int = 17, **changes: Any) -> Action:
    decision = replace(decided(incident(XID)), valid_until=Nanoseconds(NOW + HOUR))
    action = make_action(decision, incident(XID), MACHINE, Nanoseconds(NOW - HOUR))
    return replace(action, **{"id": number, "state": ActionState.HOLDING, **changes})


# --- evidence -------------------------------------------------------------------------------------


def test_failed_gpu_is_drained_by_policy() -> None:
    decision = decided(incident(XID))
    assert (decision.ruling, decision.step, decision.mode) == (
        Ruling.ACT,
        Step.DRAIN,
        DrainMode.DEADLINE,
    )
    assert decision.reason == "xid 79: drain"
    assert decision.findings == (XID.key,)
    assert decision.policy_version == "p1"


def test_prediction_drains_in_finish_mode_only() -> None:
    decision = decided(incident(replace(AT_RISK, severity=Severity.CRITICAL)))
    assert (decision.step, decision.mode) == (Step.DRAIN, DrainMode.FINISH)
    assert decision.ruling is Ruling.ACT
    assert decision.model_version == "m1"


def test_failure_confirms_prediction() -> None:
    decision = decided(incident(AT_RISK, XID))
    assert decision.mode is DrainMode.DEADLINE


def test_minor_failure_does_not_escalate_prediction() -> None:
    grave = replace(AT_RISK, severity=Severity.CRITICAL)
    decision = decided(incident(grave, replace(XID, severity=Severity.WARNING)), control=1.0)
    assert (decision.step, decision.mode) == (Step.DRAIN, DrainMode.FINISH)
    assert (decision.ruling, decision.propensity) == (Ruling.ACT, None)


@pytest.mark.parametrize(
    "weak",
    [
        finding("xid 13", severity=Severity.CRITICAL),
        finding("blind", FindingKind.BLIND, severity=Severity.CRITICAL),
        finding("foreign drain", FindingKind.EXTERNAL_DRAIN, severity=Severity.CRITICAL),
    ],
    ids=lambda weak: weak.cause,
)
def test_weak_findings_never_drain(weak: Finding) -> None:
    decision = decided(incident(weak))
    assert decision.step is Step.AVOID
    assert "drain nothing" in decision.reason


def test_application_error_does_not_escalate_prediction() -> None:
    error = finding("xid 13", severity=Severity.CRITICAL)
    decision = decided(incident(AT_RISK, error))
    assert (decision.step, decision.mode) == (Step.DRAIN, DrainMode.FINISH)


def test_verdict_alone_is_only_reported() -> None:
    decision = decided(incident(replace(VERDICT, severity=Severity.CRITICAL)))
    assert (decision.ruling, decision.step) == (Ruling.OBSERVE, Step.TELL)
    assert "no other kind of evidence confirms it" in decision.reason


@pytest.mark.parametrize(
    "second",
    [
        *(AT_RISK, finding("xid 13"), finding("blind", FindingKind.BLIND)),
        finding("diagnosis", FindingKind.DIAGNOSIS),
        finding("diagnosis", FindingKind.DIAGNOSIS, evidence={"evidence_from": ["metrics"]}),
        finding("diagnosis", FindingKind.DIAGNOSIS, evidence={"evidence_from": ["list"]}),
    ],
)
def test_dependent_finding_does_not_confirm_verdict(second: Finding) -> None:
    quiet = PlainPolicy(causes={second.cause: Severity.NOTICE})
    decision = decided(incident(VERDICT, second), policy=quiet)
    assert decision.step is Step.TELL


@pytest.mark.parametrize(
    "second",
    [
        finding("xid 63"),
        finding("check", FindingKind.CHECK),
        finding("diagnosis", FindingKind.DIAGNOSIS, evidence={"evidence_from": ["dump"]}),
    ],
    ids=lambda second: second.cause,
)
def test_confirmed_verdict_avoids_machine_for_job(second: Finding) -> None:
    mild = PlainPolicy(causes={second.cause: Severity.NOTICE})
    about = incident(VERDICT, second)
    decision = decided(about, policy=mild)
    assert (decision.ruling, decision.step) == (Ruling.ACT, Step.AVOID)
    assert "for job 4711 only" in decision.reason
    assert make_action(decision, about, MACHINE, NOW).job == "4711"


def test_verdict_follows_step_of_second_evidence() -> None:
    lenient = PlainPolicy(causes={"verdict": Severity.CRITICAL, "xid 79": Severity.WARNING})
    assert decided(incident(VERDICT, XID), policy=lenient).step is Step.AVOID


# --- age ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stale",
    [
        replace(XID, valid_until=NOW),
        replace(XID, at=Nanoseconds(NOW - DAY), valid_until=Nanoseconds(NOW + DAY)),
    ],
    ids=["no longer valid", "older than its max_age"],
)
def test_stale_finding_is_not_acted_on(stale: Finding) -> None:
    decision = decided(incident(stale))
    assert decision.ruling is Ruling.HOLD
    assert decision.reason == "blocked by: xid 79 is too old to act on"
    assert decided(incident(stale, AT_RISK)).mode is DrainMode.FINISH


def test_repeat_refreshes_age_within_validity() -> None:
    old = replace(XID, at=Nanoseconds(NOW - 3 * DAY), last=Nanoseconds(NOW - HOUR), count=9)
    assert decided(incident(old)).ruling is Ruling.ACT
    assert decided(incident(replace(old, valid_until=NOW))).ruling is Ruling.HOLD


def test_future_finding_waits() -> None:
    ahead = Nanoseconds(NOW + HOUR)
    decision = decided(incident(replace(XID, at=ahead, valid_until=Nanoseconds(NOW + DAY))))
    assert (decision.ruling, decision.until) == (Ruling.HOLD, ahead)


def test_action_expires_with_its_findings() -> None:
    longer = replace(AT_RISK, valid_until=Nanoseconds(NOW + 5 * HOUR), severity=Severity.WARNING)
    assert decided(incident(longer, XID)).valid_until == NOW + HOUR


def test_same_situation_gives_same_decision() -> None:
    later = decided(incident(XID), now=Nanoseconds(NOW + 10 * MINUTE))
    assert replace(later, at=NOW) == decided(incident(XID))


# --- storms ---------------------------------------------------------------------------------------


def fresh(about: Incident) -> Incident:
    now = Nanoseconds(NOW - MINUTE)
    findings = tuple(replace(f, at=now) for f in about.findings)
    return replace(about, opened_at=now, findings=findings)


def test_group_wait_avoids_then_drains() -> None:
    decision = decided(fresh(incident(XID)))
    assert (decision.ruling, decision.step, decision.until) == (
        Ruling.ACT,
        Step.AVOID,
        NOW + MINUTE,
    )
    assert decision.reason == ("xid 79: drain; at most avoid: related findings may still arrive")
    later = decided(fresh(incident(XID)), now=Nanoseconds(NOW + MINUTE))
    assert (later.ruling, later.step) == (Ruling.ACT, Step.DRAIN)


def test_prediction_skips_group_wait() -> None:
    assert decided(fresh(incident(AT_RISK))).step is Step.DRAIN


def storm(after: int) -> Incident:
    """Return an open event of job 4711 whose last finding is `after` nanoseconds from now."""
    at = Nanoseconds(NOW + after)
    findings = tuple(
        replace(XID, id=f"n{n}", cause="xid 45", machine=f"n{n}", at=at) for n in range(3)
    )
    names = ("n0", "n1", "n2")
    return Incident(50, "n0", None, at, shared="job 4711", machines=names, findings=findings)


def test_shared_event_drains_no_machine() -> None:
    decision = decided(storm(0))
    assert (decision.ruling, decision.step) == (Ruling.OBSERVE, Step.TELL)
    assert decision.reason == (
        "3 machines of job 4711 at once: one event, no machine is drained for it; "
        "clocks cannot tell which of n0, n1, n2 was first"
    )


@pytest.mark.parametrize("about", [incident(XID), incident(AT_RISK)], ids=["xid", "at risk"])
def test_open_event_allows_at_most_avoid(about: Incident) -> None:
    event = storm(-14 * MINUTE)
    decision = decided(about, open=group_by_machine([about, event]), control=1.0)
    assert (decision.ruling, decision.step) == (Ruling.ACT, Step.AVOID)
    assert decision.until == NOW + MINUTE
    assert "incident 50 (job 4711) is not over yet" in decision.reason
    over = storm(-15 * MINUTE)
    assert decided(about, open=group_by_machine([about, over])).step is Step.DRAIN


def test_finding_of_closed_event_drains_nothing() -> None:
    event = storm(-HOUR)
    same = replace(XID, id="9", cause="xid 45", at=Nanoseconds(NOW - HOUR + MINUTE))
    decision = decided(incident(same), open=group_by_machine([event]))
    assert decision.ruling is Ruling.HOLD
    assert decision.reason == "blocked by: xid 45 belongs to incident 50 (job 4711)"
    later = replace(same, at=Nanoseconds(NOW - HOUR // 2))
    assert decided(incident(later), open=group_by_machine([event])).ruling is Ruling.ACT


# --- the machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fleet", "ruling", "words"),
    [
        ({}, Ruling.HOLD, "the scheduler does not know n0"),
        (machines(pool=None), Ruling.OBSERVE, "n0 is in no pool of the configuration"),
        (machines(pool="guests"), Ruling.OBSERVE, "n0 is in no pool of the configuration"),
        (machines(labels={"forewarn": "off"}), Ruling.OBSERVE, "n0 is opted out by its label"),
        (
            machines(state=ServiceState.DRAINED, reason="cable"),
            Ruling.HOLD,
            "n0 is out of service already (cable)",
        ),
        (machines(state=ServiceState.DOWN), Ruling.HOLD, "n0 is out of service already"),
    ],
)
def test_untouchable_machine_is_left_alone(
    fleet: dict[str, Machine], ruling: Ruling, words: str
) -> None:
    decision = decided(incident(XID), fleet=fleet)
    assert decision.ruling is ruling
    assert decision.reason.endswith(words)
    assert decision.step is Step.DRAIN


def test_machine_is_not_drained_twice() -> None:
    decision = decided(incident(XID), recent=[drain(incident=99)])
    assert decision.ruling is Ruling.HOLD
    assert decision.reason.endswith("blocked by: action 17 already drains it")


def test_avoided_machine_can_be_drained() -> None:
    avoided = drain(step=Step.AVOID, mode=None)
    assert decided(incident(XID), recent=[avoided]).ruling is Ruling.ACT


def test_returned_machine_is_not_drained_for_old_findings() -> None:
    back = drain(state=ActionState.RELEASED, changed_at=Nanoseconds(NOW - HOUR // 2))
    decision = decided(incident(XID, AT_RISK), recent=[back])
    assert decision.ruling is Ruling.HOLD
    assert decision.reason.endswith("action 17 answered this, and is released")
    again = replace(XID, last=Nanoseconds(NOW - MINUTE), count=2)
    assert decided(incident(again), recent=[back]).ruling is Ruling.ACT


@pytest.mark.parametrize("state", [ActionState.FAILED, ActionState.EXPIRED])
def test_unstarted_action_answers_nothing(state: ActionState) -> None:
    failed = drain(state=state, changed_at=NOW)
    assert decided(incident(XID), recent=[failed]).ruling is Ruling.ACT


# --- overrides ------------------------------------------------------------------------------------


def override(**changes: Any) -> Override:
    past = Nanoseconds(NOW - 2 * DAY)
    return replace(Override("n0", "xid 79", past, "alice", Severity.ERROR), **changes)


def test_override_blocks_cause_for_seven_days() -> None:
    decision = decided(incident(XID), overrides=[override()])
    assert (decision.ruling, decision.until) == (Ruling.HOLD, NOW + 5 * DAY)
    assert "overridden on n0 by alice" in decision.reason
    assert "for 7 days unless it becomes more severe" in decision.reason


@pytest.mark.parametrize(
    "other",
    [
        override(machine="n1"),
        override(cause="xid 95"),
        override(at=Nanoseconds(NOW - 7 * DAY)),
        override(severity=Severity.WARNING),
    ],
    ids=["another machine", "another cause", "long ago", "graver now"],
)
def test_override_of_other_cause_blocks_nothing(other: Override) -> None:
    assert decided(incident(XID), overrides=[other]).ruling is Ruling.ACT


def test_override_without_severity_blocks_any_severity() -> None:
    grave = replace(XID, severity=Severity.CRITICAL)
    assert decided(incident(grave), overrides=[override(severity=None)]).ruling is Ruling.HOLD


def test_overridden_incident_is_blocked() -> None:
    about = incident(XID, state=IncidentState.OVERRIDDEN)
    assert decided(about).reason.endswith("blocked by: the incident is overridden")


# --- permission to act ----------------------------------------------------------------------------


def test_observe_pool_reports_step() -> None:
    decision = decided(incident(XID), mode=PoolMode.OBSERVE)
    assert (decision.ruling, decision.step) == (Ruling.OBSERVE, Step.DRAIN)
    assert decision.reason == "xid 79: drain; observed only: pool train is in mode observe"


def test_propose_pool_waits_for_approval() -> None:
    proposed = decided(incident(XID), mode=PoolMode.PROPOSE)
    assert proposed.ruling is Ruling.PROPOSE
    agreed = {1: Approval(proposed, NOW, "alice")}
    decision = decided(incident(XID), mode=PoolMode.PROPOSE, approvals=agreed)
    assert (decision.ruling, decision.who) == (Ruling.ACT, "alice")
    over = {1: Approval(replace(proposed, valid_until=NOW), NOW, "alice")}
    assert decided(incident(XID), mode=PoolMode.PROPOSE, approvals=over).ruling is Ruling.PROPOSE


def test_approval_covers_nothing_more_disruptive() -> None:
    shown = decided(incident(AT_RISK), mode=PoolMode.PROPOSE)
    agreed = {1: Approval(shown, NOW, "alice")}
    about = incident(AT_RISK, XID)
    assert decided(about, mode=PoolMode.PROPOSE, approvals=agreed).ruling is Ruling.PROPOSE


def test_approved_step_respects_limits() -> None:
    proposed = decided(incident(UNCERTAIN), mode=PoolMode.PROPOSE)
    decision = decided(
        incident(UNCERTAIN),
        mode=PoolMode.PROPOSE,
        approvals={1: Approval(proposed, NOW, "alice")},
        fleet={**machines(), **drained_by_us(1, 2)},
    )
    assert decision.ruling is Ruling.HOLD


def test_repeated_step_needs_person() -> None:
    assert decided(incident(XID), policy=PlainPolicy(needs_person=True)).ruling is Ruling.PROPOSE


def test_limit_is_named_in_reason() -> None:
    decision = decided(incident(UNCERTAIN), fleet={**machines(), **drained_by_us(1, 2)})
    assert decision.ruling is Ruling.HOLD
    words = "blocked by: forewarn has 2 of 50 machines of pool train out, at most 2"
    assert decision.reason.endswith(words)


def test_certain_damage_ignores_share_not_rate() -> None:
    fleet = {**machines(), **drained_by_us(1, 2)}
    assert decided(incident(XID), fleet=fleet).ruling is Ruling.ACT
    earlier = [drain(number, machine=f"n{number}") for number in (10, 11)]
    decision = decided(incident(XID), fleet=fleet, recent=earlier)
    assert decision.ruling is Ruling.HOLD
    assert "in the whole fleet, at most 2" in decision.reason


@pytest.mark.parametrize("is_alone", [True, False])
def test_certain_damage_waits_two_minutes(
    is_alone: bool,
) -> None:
    fleet = {n: replace(m, jobs=("4711",)) for n, m in machines().items()}
    at = Nanoseconds(NOW - 3 * MINUTE)
    here = replace(incident(replace(XID, at=at)), opened_at=at)
    other = replace(here, id=2, machine="n1", findings=(replace(XID, machine="n1", at=at),))
    incidents = [here] if is_alone else [here, other]
    decision = decided(here, fleet=fleet, open=group_by_machine(incidents))
    if is_alone:
        assert (decision.ruling, decision.mode) == (Ruling.ACT, DrainMode.FINISH)
    else:
        assert decision.step is Step.AVOID
    later = decided(
        here, fleet=fleet, open=group_by_machine(incidents), now=Nanoseconds(NOW + HOUR // 2)
    )
    assert (later.ruling, later.mode) == (Ruling.ACT, DrainMode.DEADLINE)


# --- interlocks and the holdout -------------------------------------------------------------------


def test_interlock_observes_until_it_ends() -> None:
    interlock = Interlock("three overrides in a day", Nanoseconds(NOW + HOUR))
    decision = decided(incident(XID), interlocks=[interlock])
    assert (decision.ruling, decision.until) == (Ruling.OBSERVE, NOW + HOUR)
    assert decision.reason.endswith("observed only: three overrides in a day")


def test_model_interlock_blocks_predictions_only() -> None:
    new = [Interlock("the first day of model m1", None, model="m1")]
    assert decided(incident(AT_RISK), interlocks=new).ruling is Ruling.OBSERVE
    assert decided(incident(AT_RISK, XID), interlocks=new).ruling is Ruling.ACT
    assert (
        decided(incident(replace(AT_RISK, model_version="m0")), interlocks=new).ruling is Ruling.ACT
    )


def test_holdout_applies_to_predictions_only() -> None:
    decision = decided(incident(AT_RISK), control=1.0)
    assert (decision.ruling, decision.control, decision.propensity) == (Ruling.OBSERVE, True, 1.0)
    assert decision.reason.endswith("as part of the holdout")
    for evidence in (XID, finding("check", FindingKind.CHECK), finding("f", FindingKind.FAILURE)):
        decision = decided(incident(AT_RISK, evidence), control=1.0)
        assert (decision.ruling, decision.propensity) == (Ruling.ACT, None)


def test_unassigned_holdout_is_recorded() -> None:
    settings = ResponseSettings(salt="site")
    drawn = [
        decided(replace(incident(AT_RISK), id=number), control=0.2, settings=settings)
        for number in range(200)
    ]
    assert {decision.propensity for decision in drawn} == {0.2}
    assert sum(decision.control for decision in drawn) == 40
    assert {d.ruling for d in drawn if not d.control} == {Ruling.ACT}


def test_holdout_is_assigned_before_proposal() -> None:
    assert decided(incident(AT_RISK), mode=PoolMode.PROPOSE, control=1.0).ruling is Ruling.OBSERVE


def test_observe_pool_has_propensity_one() -> None:
    decision = decided(incident(AT_RISK), mode=PoolMode.OBSERVE, control=0.2)
    assert (decision.propensity, decision.control) == (1.0, False)
