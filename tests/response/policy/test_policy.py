"""Steps of the default policy, and properties for any findings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.features.xid_catalogue import DEGRADED_XIDS, FATAL_XIDS
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.response.policy.policy import PolicyChoice
from forewarn.response.policy.policy_rule import Rule
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.step import DrainMode, Step

POLICY = load_policy()
NOW = Nanoseconds(100 * DAY)


def finding(kind: str, cause: str = "", *, before: int = 0, **fields: Any) -> Finding:
    """Return a finding from `before` nanoseconds ago that is valid for a day."""
    values: dict[str, Any] = {
        "source": "test",
        "id": f"{kind} {cause} {before} {fields}",
        "cause": cause or kind,
        "machine": "node-1",
        "gpu_serial": "gpu-1",
        "valid_until": Nanoseconds(NOW + DAY),
    }
    at = Nanoseconds(NOW - before)
    return Finding(kind=FindingKind(kind), at=at, **(values | fields))


def xid(code: int, *, before: int = 0, **fields: Any) -> Finding:
    return finding("xid", f"xid {code}", before=before, **fields)


def incident(*findings: Finding, number: int = 1) -> Incident:
    return Incident(number, "node-1", "gpu-1", NOW, findings=findings)


def ended(step: Step, cause: str, *, before: int, state: str = "released") -> Action:
    """Return an action that ended `before` nanoseconds ago, an hour after its start."""
    at, changed = Nanoseconds(NOW - before - HOUR), Nanoseconds(NOW - before)
    mode = DrainMode.FINISH if step.isolates else None
    until, how = Nanoseconds(at + DAY), ActionState(state)
    return Action(
        7, 5, "node-1", "gpu", None, None, cause, step, mode, at, until, changed, state=how
    )


def choose(*findings: Finding, others: tuple[Finding, ...] = (), earlier: Any = ()) -> PolicyChoice:
    incidents = [incident(*others, number=2)] if others else []
    return POLICY.step_for(incident(*findings), incidents, earlier, NOW)


def wanted_step(choice: PolicyChoice) -> tuple[Severity, Step, DrainMode | None]:
    return choice.severity, choice.step, choice.mode


# --- certain damage -------------------------------------------------------------------------------

CERTAIN = [
    *(xid(code) for code in (48, 64, 79, 95, 140)),
    *(xid(154, evidence={"action": action}) for action in ("reset", "reboot", "drain")),
    finding("failure", "lost"),
    finding("failure", "needs_reset"),
    finding("check", "check by nhc", severity=Severity.NOTICE, evidence={"check": "digest"}),
]
MILD = Rule(Severity.NOTICE, Step.TELL, confirmed_by=frozenset({EvidenceKind.CHECK}))


@pytest.mark.parametrize("certain", CERTAIN, ids=lambda f: f"{f.cause} {dict(f.evidence)}")
@pytest.mark.parametrize("mild", [False, True])
def test_certain_damage_is_at_least_drained(certain: Finding, mild: bool) -> None:
    policy = POLICY
    if mild:  # a policy that no file can define
        rules = {code: replace(rule, rule=MILD) for code, rule in POLICY.xids.items()}
        policy = replace(POLICY, kinds=dict.fromkeys(FindingKind, MILD), xids=rules)
    choice = policy.step_for(incident(certain), [], (), NOW)
    assert choice.step.isolates
    assert choice.severity.rank >= Severity.ERROR.rank


@pytest.mark.parametrize(
    "uncertain",
    [
        *(xid(154), xid(154, evidence={"action": "none"}), xid(63), xid(94), finding("at_risk")),
        finding("failure", "needs_reset", evidence={"action": "none"}),
    ],
    ids=lambda f: f"{f.cause} {dict(f.evidence)}",
)
def test_uncertain_damage_follows_policy(uncertain: Finding) -> None:
    assert not choose(uncertain).step.isolates


# --- single cases ---------------------------------------------------------------------------------

NOTICE, WARNING, ERROR, CRITICAL = Severity


@pytest.mark.parametrize(
    ("code", "severity", "step", "mode"),
    [
        (13, NOTICE, Step.TELL, None),
        (31, NOTICE, Step.TELL, None),
        (43, NOTICE, Step.TELL, None),
        (45, NOTICE, Step.TELL, None),
        (48, CRITICAL, Step.RESET, DrainMode.DEADLINE),
        (63, WARNING, Step.AVOID, None),
        (64, CRITICAL, Step.RESET, DrainMode.DEADLINE),
        (74, ERROR, Step.CHECK, DrainMode.FINISH),
        (79, CRITICAL, Step.RESTART, DrainMode.DEADLINE),
        (92, WARNING, Step.AVOID, None),
        (94, WARNING, Step.AVOID, None),
        (95, CRITICAL, Step.RESET, DrainMode.DEADLINE),
        (119, CRITICAL, Step.RESET, DrainMode.DEADLINE),
        (120, CRITICAL, Step.RESET, DrainMode.DEADLINE),
        (140, CRITICAL, Step.RESET, DrainMode.DEADLINE),
        (143, CRITICAL, Step.RESET, DrainMode.DEADLINE),
        (500, NOTICE, Step.TELL, None),
    ],
)
def test_single_code_follows_policy(
    code: int, severity: Severity, step: Step, mode: DrainMode | None
) -> None:
    assert wanted_step(choose(xid(code))) == (severity, step, mode)


def test_default_policy_covers_xid_catalog() -> None:
    assert [*POLICY.xids] == [*range(1, 173)]
    severities = {code: POLICY.rule(xid(code)).severity for code in POLICY.xids}
    assert {severities[code] for code in FATAL_XIDS} == {ERROR, CRITICAL}
    assert {severities[code] for code in DEGRADED_XIDS} == {WARNING}
    others = severities.keys() - {*FATAL_XIDS, *DEGRADED_XIDS}
    assert {severities[code] for code in others} == {NOTICE}
    acting = {code for code in POLICY.xids if POLICY.rule(xid(code)).step.isolates}
    assert acting == {*FATAL_XIDS}


def test_reason_names_code_and_meaning() -> None:
    assert choose(xid(79)).reason == "xid 79 (GPU fell off the bus): restart"


def test_repeat_changes_no_reason() -> None:
    first, later = xid(43, before=MINUTE), xid(13)
    assert (
        choose(first, later).reason == choose(first).reason == ("xid 43 (channel was reset): tell")
    )


def test_only_likely_prediction_drains() -> None:
    assert wanted_step(choose(finding("at_risk"))) == (WARNING, Step.AVOID, None)
    likely = finding("at_risk", evidence={"probability": 0.5})
    assert wanted_step(choose(likely)) == (WARNING, Step.DRAIN, DrainMode.FINISH)


def test_confirmed_verdict_drains() -> None:
    verdict = finding("verdict")
    assert choose(verdict).step is Step.TELL
    assert choose(verdict, finding("at_risk"), xid(31)).step is Step.AVOID  # step of the prediction
    with_xid = choose(verdict, others=(xid(94, gpu_serial="gpu-2"),))
    assert wanted_step(with_xid) == (ERROR, Step.DRAIN, DrainMode.DEADLINE)
    assert with_xid.reason == "verdict: drain (confirmed by xid 94)"


def test_application_error_does_not_confirm_verdict() -> None:
    assert choose(finding("verdict"), others=(xid(13),)).step is Step.TELL


def test_site_failure_code_does_not_confirm_verdict() -> None:
    site = load_policy(failures=[13])
    assert site.rule(xid(13)).severity is ERROR
    choice = site.step_for(incident(finding("verdict"), xid(13)), [], [], NOW)
    assert choice.step is Step.TELL


def test_rules_cannot_exceed_evidence_bounds() -> None:
    hard = replace(POLICY.xids[79].rule, at_most=Step.REPLACE, step=Step.RESET, mode=DrainMode.NOW)
    kinds = {**POLICY.kinds, FindingKind.AT_RISK: hard, FindingKind.BLIND: hard}
    policy = replace(POLICY, kinds=kinds)
    prediction = policy.step_for(incident(finding("at_risk")), [], [], NOW)
    assert (prediction.step, prediction.mode) == (Step.DRAIN, DrainMode.FINISH)
    assert policy.step_for(incident(finding("blind")), [], [], NOW).step is Step.AVOID


def test_expired_finding_is_not_acted_on() -> None:
    over = xid(79, valid_until=NOW)
    old = xid(79, before=25 * HOUR, valid_until=Nanoseconds(NOW + 9 * DAY))
    of_the_future = xid(79, before=-1)
    for stale in (over, old, of_the_future):
        assert choose(stale).step is Step.TELL
        assert choose(stale).findings == ()
    repeated = replace(old, first=old.at, last=NOW, count=2)
    assert choose(repeated).step is Step.RESTART


def test_following_code_is_inhibited() -> None:
    crash, removed = xid(79, before=2 * MINUTE), xid(45, before=MINUTE)
    assert choose(crash, removed).findings == (crash,)
    later = xid(154, before=MINUTE)
    assert choose(later).step is Step.AVOID
    assert choose(later, others=(crash,)).findings == ()


def test_less_severe_code_inhibits_nothing() -> None:
    both = incident(xid(13, before=2 * MINUTE), xid(45, before=MINUTE))
    echo = replace(POLICY.xids[45], rule=POLICY.xids[74].rule)
    told_rule = POLICY.xids[13].rule
    for severity in (NOTICE, CRITICAL):  # more severe, but only reported
        leader = replace(POLICY.xids[13], rule=replace(told_rule, severity=severity))
        policy = replace(POLICY, xids={**POLICY.xids, 13: leader, 45: echo})
        assert policy.step_for(both, [], [], NOW).step is Step.CHECK


def test_inhibition_ends_after_span() -> None:
    crash = xid(79, before=20 * MINUTE)
    assert choose(xid(154, before=MINUTE), others=(crash,)).step is Step.AVOID


def test_cancelling_code_suppresses_other() -> None:
    failed, remapped = xid(64, before=MINUTE), xid(63, before=2 * MINUTE)
    assert choose(remapped, others=(failed,)).findings == ()
    assert choose(failed, remapped).step is Step.RESET


def test_frequent_cause_escalates() -> None:
    def contained(number: int, gpu: str = "gpu-1") -> list[Finding]:
        return [xid(94, before=n * HOUR, gpu_serial=gpu) for n in range(number)]

    assert choose(*contained(4)).step is Step.AVOID
    often = choose(*contained(5))
    assert wanted_step(often) == (ERROR, Step.CHECK, DrainMode.FINISH)
    assert "5 times or more in 1 day" in often.reason
    assert choose(*contained(3), others=tuple(contained(2, "gpu-2"))).step is Step.AVOID
    one_row = xid(94, before=2 * HOUR, first=Nanoseconds(NOW - 2 * HOUR), last=NOW, count=5)
    assert choose(one_row).step is Step.CHECK


def test_repeats_are_counted_by_address() -> None:
    def at(address: str, number: int) -> list[Finding]:
        where = {"gpu_serial": None, "evidence": {"pci": address}}
        return [xid(94, before=n * HOUR, **where) for n in range(number)]

    assert choose(*at("0000:1a:00", 3), *at("0000:1b:00", 3)).step is Step.AVOID
    assert choose(*at("0000:1a:00", 5)).step is Step.CHECK


def test_ineffective_step_escalates() -> None:
    reset = ended(Step.RESET, "xid 119", before=2 * DAY)
    again = choose(xid(119), earlier=[reset])
    assert (again.step, again.needs_person) == (Step.RESTART, False)
    assert again.reason.endswith("restart (reset had no effect)")
    long_ago = ended(Step.RESET, "xid 119", before=8 * DAY)
    assert choose(xid(119), earlier=[long_ago]).step is Step.RESET
    other_gpu = replace(reset, gpu_serial="gpu-2")
    assert choose(xid(119), earlier=[other_gpu]).step is Step.RESET
    only_avoided = ended(Step.AVOID, "xid 94", before=2 * DAY)
    assert choose(xid(94), earlier=[only_avoided]).step is Step.AVOID
    other_cause = ended(Step.RESET, "xid 95", before=2 * DAY)
    assert choose(xid(119), earlier=[other_cause]).step is Step.RESET
    before_it = xid(119, before=3 * DAY, valid_until=Nanoseconds(NOW + DAY), last=NOW - 3 * DAY)
    assert choose(before_it, earlier=[reset]).step is Step.TELL  # too old to act on


def test_prediction_is_never_escalated() -> None:
    earlier = [ended(Step.DRAIN, "at_risk", before=2 * DAY)]
    choice = choose(finding("at_risk"), earlier=earlier)
    assert (choice.step, choice.mode) == (Step.DRAIN, DrainMode.FINISH)


def test_repeated_step_needs_person() -> None:
    once = ended(Step.RESTART, "xid 48", before=DAY)
    twice = ended(Step.RESTART, "xid 95", before=3 * DAY)
    assert not choose(xid(79), earlier=[once]).needs_person
    third = choose(xid(79), earlier=[once, twice])
    assert (third.step, third.needs_person) == (Step.RESTART, True)
    assert "a person has to look" in third.reason
    old = ended(Step.RESTART, "xid 95", before=7 * DAY)
    never_done = ended(Step.RESTART, "xid 95", before=DAY, state="failed")
    still_open = ended(Step.RESTART, "xid 95", before=DAY, state="holding")
    for other in (old, never_done, still_open):
        assert not choose(xid(79), earlier=[once, other]).needs_person


def test_tell_never_needs_person() -> None:
    often_told = [ended(Step.TELL, "xid 13", before=n * HOUR) for n in range(9)]
    assert not choose(xid(13), earlier=often_told).needs_person


# --- properties -----------------------------------------------------------------------------------

CODES = st.sampled_from([13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119, 154, 171, 500])
KINDS = st.sampled_from([kind.value for kind in FindingKind if kind is not FindingKind.XID])
AGES = st.integers(0, 26).map(lambda hours: hours * HOUR)
GPUS = st.sampled_from(["gpu-1", "gpu-2", None])


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    severity = draw(st.sampled_from([None, *Severity]))
    fields: dict[str, Any] = {"gpu_serial": draw(GPUS), "severity": severity}
    fields["evidence"] = {"probability": draw(st.sampled_from([0.1, 0.6]))}
    before = draw(AGES)
    if draw(st.booleans()):
        return xid(draw(CODES), before=before, **fields)
    return finding(draw(KINDS), before=before, **fields)


actions = st.builds(
    ended,
    st.sampled_from(Step),
    st.sampled_from(["xid 94", "xid 119", "xid 13", "at_risk", "verdict"]),
    before=st.integers(0, 8).map(lambda days: days * DAY),
)
several = st.lists(findings(), max_size=6, unique_by=lambda f: f.id)


@given(several, st.lists(actions, max_size=4), st.randoms(use_true_random=False))
def test_order_of_findings_does_not_matter(
    some: list[Finding], earlier: list[Action], random: Any
) -> None:
    shuffled = random.sample(some, len(some))
    assert choose(*some, earlier=earlier) == choose(*shuffled, earlier=earlier)


@given(several, st.lists(actions, max_size=4))
def test_weak_kinds_never_drain(some: list[Finding], earlier: list[Action]) -> None:
    mild = {"xid 13", "xid 31", "xid 43", "xid 45", "blind", "foreign_drain"}
    harmless = [f for f in some if f.cause in mild]
    assert choose(*harmless, earlier=earlier).step is Step.TELL


@given(several, st.lists(actions, max_size=4))
def test_predictions_end_no_job(some: list[Finding], earlier: list[Action]) -> None:
    predictions = [f for f in some if f.predicts or f.kind is FindingKind.BLIND]
    choice = choose(*predictions, earlier=earlier)
    assert choice.step.rank <= Step.DRAIN.rank
    assert choice.mode in (None, DrainMode.FINISH)


@given(several, findings())
def test_additional_finding_never_weakens_step(some: list[Finding], more: Finding) -> None:
    before, after = choose(*some), choose(*some, more)
    assert after.severity.rank >= before.severity.rank
    assert after.step.rank >= before.step.rank


@given(several, st.sampled_from(Severity), st.sampled_from(Severity))
def test_higher_severity_never_weakens_step(
    some: list[Finding], first: Severity, second: Severity
) -> None:
    milder, graver = sorted((first, second), key=lambda severity: severity.rank)
    steps = [
        choose(*(replace(f, severity=severity) for f in some)).step.rank
        for severity in (milder, graver)
    ]
    assert steps[0] <= steps[1]


NVLINK = (144, 145, 146, 147, 148, 149, 150)


@pytest.mark.parametrize("code", NVLINK)
@pytest.mark.parametrize(
    ("evidence", "step"),
    [({"severity": "fatal"}, Step.RESET), ({"severity": "nonfatal"}, Step.AVOID), ({}, Step.AVOID)],
)
def test_driver_decides_nvlink_severity(code: int, evidence: dict[str, str], step: Step) -> None:
    assert choose(xid(code, evidence=evidence)).step == step


@pytest.mark.parametrize(
    ("action", "step"),
    [
        ("none", Step.TELL),
        ("reset", Step.RESET),
        ("reboot", Step.RESTART),
        ("drain", Step.CHECK),
        ("drain_and_reset", Step.RESET),
    ],
)
def test_requested_recovery_is_the_step(action: str, step: Step) -> None:
    assert choose(xid(154, evidence={"action": action})).step == step
    if action != "none":
        requested = finding("failure", "needs_reset", evidence={"action": action})
        assert choose(requested).step == step


def test_posted_finding_is_no_driver_statement() -> None:
    report = finding("report", "nvlink-down", evidence={"action": "reboot", "severity": "fatal"})
    assert choose(report).step == Step.AVOID
    assert choose(xid(13, evidence={"severity": "fatal"})).step == Step.TELL


def test_unreported_code_is_only_told() -> None:
    policy = load_policy(reported=[79])
    assert policy.rule(xid(149, evidence={"severity": "fatal"})).at_most == Step.TELL
