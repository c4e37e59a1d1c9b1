"""Escalation by duration and frequency: windows at their edges, releases, and repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.response.policy.escalation import Escalated, MachineHistory, escalate
from forewarn.response.policy.fault_level import FaultLevel
from forewarn.response.policy.policy_rule import FaultDuration, FaultFrequency, Rule
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.step import Step

POLICY = load_policy()
TOGETHER = 10
THREE_IN_AN_HOUR = FaultFrequency(
    3, Nanoseconds(60 * MINUTE), FaultLevel.ISOLATE, Nanoseconds(120 * MINUTE)
)
LASTING = FaultDuration(Nanoseconds(20 * MINUTE), Nanoseconds(5 * MINUTE), FaultLevel.NO_NEW_JOBS)
RULE = Rule(Severity.WARNING, Step.AVOID)


def _at(minutes: float) -> Nanoseconds:
    return Nanoseconds(round(minutes * MINUTE))


def _finding(minutes: float, last: float | None = None, **values: Any) -> Finding:
    finding = Finding(
        *("records", f"{minutes}", FindingKind.REPORT, "port down", "node-1"),
        at=_at(minutes),
        valid_until=_at(10**6),
        first=_at(minutes),
        last=_at(minutes if last is None else last),
    )
    return replace(finding, **values)


def _escalated(
    *findings: Finding,
    duration: FaultDuration | None = None,
    frequency: FaultFrequency | None = None,
    now: float | None = None,
) -> Escalated:
    """Return the escalation of the last finding."""
    rule = replace(RULE, duration=duration, frequency=frequency)
    moment = findings[-1].last_reported if now is None else _at(now)
    return escalate(
        *(findings[-1], rule, MachineHistory(findings, (), moment)),
        levels=POLICY.levels,
        returned=POLICY.returned,
        together=_at(TOGETHER),
    )


@pytest.mark.parametrize(
    ("minutes", "level"),
    [
        ((0, 20, 40), FaultLevel.ISOLATE),
        ((0, 20), None),
        ((0, 30, 59), FaultLevel.ISOLATE),
        ((0, 30, 60), None),  # the window is half open
        ((0, 5, 9), None),  # repeats of one crash
        ((0, 5, 10, 15, 20), FaultLevel.ISOLATE),  # at 0, 10 and 20
        ((0, 20, 40, 159), FaultLevel.ISOLATE),  # not released yet
        ((0, 20, 40, 160), None),  # released after two hours
    ],
)
def test_frequency_at_the_edges(minutes: tuple[float, ...], level: FaultLevel | None) -> None:
    escalated = _escalated(*map(_finding, minutes), frequency=THREE_IN_AN_HOUR)
    assert escalated.level is level
    assert escalated.step is (Step.AVOID if level is None else Step.CHECK)


def test_manual_level_is_not_released() -> None:
    manual = FaultFrequency(3, _at(60), FaultLevel.ISOLATE_MANUAL)
    findings = [_finding(minutes) for minutes in (0, 20, 40, 10_000)]
    assert _escalated(*findings, frequency=manual).level is FaultLevel.ISOLATE_MANUAL


def test_escalation_without_release_is_refused() -> None:
    with pytest.raises(ValueError, match="`release` is missing, and the level is isolate"):
        FaultFrequency(3, _at(60), FaultLevel.ISOLATE)


@pytest.mark.parametrize(
    ("findings", "now", "level"),
    [
        ([_finding(0, 19, count=20)], 19, None),
        ([_finding(0, 20, count=21)], 20, FaultLevel.NO_NEW_JOBS),
        ([_finding(0, 20, count=21)], 24, FaultLevel.NO_NEW_JOBS),
        ([_finding(0, 20, count=21)], 25, None),  # over
        ([_finding(0, 20, count=5)], 20, None),  # five minutes apart: five faults
        ([_finding(0, 12, count=13), _finding(16, 21, count=6)], 21, FaultLevel.NO_NEW_JOBS),
        ([_finding(0, 12, count=13), _finding(17, 30, count=14)], 30, None),
    ],
)
def test_duration_at_the_edges(
    findings: list[Finding], now: float, level: FaultLevel | None
) -> None:
    assert _escalated(*findings, duration=LASTING, now=now).level is level


def test_frequency_counts_only_faults_that_lasted() -> None:
    short = [_finding(minutes) for minutes in (0, 20, 40)]
    both = {"duration": LASTING, "frequency": replace(THREE_IN_AN_HOUR, within=_at(600))}
    assert _escalated(*short, **both).level is None  # type: ignore[arg-type]
    long = [_finding(minutes, minutes + 20, count=21) for minutes in (0, 100, 200)]
    assert _escalated(*long, **both).level is FaultLevel.ISOLATE  # type: ignore[arg-type]
    assert _escalated(*long[:2], **both).level is FaultLevel.NO_NEW_JOBS  # type: ignore[arg-type]


def test_event_on_many_machines_escalates_nothing() -> None:
    """Five contained errors escalate on one machine, but not those of a shared incident."""
    findings = tuple(_finding(60 * hour, cause="xid 94", kind=FindingKind.XID) for hour in range(5))
    old, new = (
        Incident(1, "node-1", None, _at(0), findings=findings[:4]),
        Incident(2, "node-1", None, _at(0), findings=findings[4:]),
    )
    now = _at(241)
    assert POLICY.step_for(new, [old], (), now).step is Step.CHECK
    shared = replace(old, shared="the job 7")
    assert POLICY.step_for(new, [shared], (), now).step is Step.AVOID


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("80E18402 SeparateNPU", Step.CHECK),
        ("80E18402 RestartNPU", Step.RESET),
        ("80E18402 SubHealthFault", Step.AVOID),
        ("80E18402 RestartBusiness", Step.TELL),
        ("80FFFFFF unknown level", Step.TELL),
    ],
)
def test_faults_of_npus_have_the_levels_of_mindcluster(name: str, step: Step) -> None:
    finding = _finding(0, kind=FindingKind.FAILURE, cause=f"gpu_error {name}")
    incident = Incident(1, "node-1", None, _at(0), findings=(finding,))
    assert POLICY.step_for(incident, (), (), _at(0)).step is step


@given(st.lists(st.integers(0, 300), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_order_and_repeats_of_findings_do_not_matter(minutes: list[int], random: Any) -> None:
    findings = [_finding(minute) for minute in minutes]
    last = max(findings, key=lambda finding: finding.at)
    mixed = [*findings, *findings]
    random.shuffle(mixed)
    for rule in ({"frequency": THREE_IN_AN_HOUR}, {"duration": LASTING}):
        first = _escalated(*findings, last, **rule)
        assert first == _escalated(*mixed, last, **rule)


@given(st.lists(st.integers(0, 300), max_size=12), st.integers(0, 300))
def test_more_findings_never_escalate_less(minutes: list[int], more: int) -> None:
    last = _finding(310)
    fewer = _escalated(*map(_finding, minutes), last, frequency=THREE_IN_AN_HOUR)
    most = _escalated(*map(_finding, [*minutes, more]), last, frequency=THREE_IN_AN_HOUR)
    assert most.step.rank >= fewer.step.rank
