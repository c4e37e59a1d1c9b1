"""Findings of a shared token against findings of the host itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forewarn.features.time_units import DAY, HOUR, SECOND, Nanoseconds
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.response.follow_up.outcome_assessment import assess_outcome
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.policy.policy import Policy
from forewarn.response.state.finding import Finding, FindingKind, Provenance, Severity
from forewarn.response.state.incident import Incident, Outcome
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import Step

START = Nanoseconds(1_740_787_200 * SECOND)
SETTINGS = ResponseSettings()


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy()


def finding(kind: FindingKind, cause: str, hours: int = 0, **more: object) -> Finding:
    at = Nanoseconds(START + hours * HOUR)
    values: dict[str, object] = {"severity": Severity.CRITICAL, "vouched": Provenance.SHARED} | more
    until = Nanoseconds(at + 7 * DAY)
    name = f"{cause} {hours}"
    return Finding("nhc", name, kind, cause, "m1", at, until, **values)  # type: ignore[arg-type]


def step(policy: Policy, *findings: Finding, after: int = 0) -> Step:
    incident = Incident(1, "m1", None, START, findings=findings)
    return policy.step_for(incident, [], [], Nanoseconds(START + after * HOUR)).step


CODES = [13, 31, 43, 45, 48, 62, 63, 64, 74, 79, 94, 95, 119, 140, 154, 999]


@pytest.mark.parametrize("kind", list(FindingKind))
def test_shared_token_finding_never_isolates(policy: Policy, kind: FindingKind) -> None:
    causes = [f"xid {code}" for code in CODES] if kind is FindingKind.XID else ["a", "lost"]
    causes += ["needs_reset"]
    evidence = {"action": "reset", "check": "digest", "probability": 1.0}
    for cause in causes:
        shared = finding(kind, cause, evidence=evidence)
        assert not policy.rule(shared).at_most.isolates
        assert not is_certain(shared)
        assert not step(policy, shared).isolates


def test_repeats_of_shared_token_never_isolate(policy: Policy) -> None:
    often = [finding(FindingKind.XID, f"xid {code}", count=1000) for code in CODES]
    often += [finding(FindingKind.CHECK, "check by nhc", hour, count=9) for hour in range(20)]
    assert not step(policy, *often, after=20).isolates


def test_shared_token_changes_no_step(policy: Policy) -> None:
    for code in CODES:
        own = finding(FindingKind.XID, f"xid {code}", 5, vouched=Provenance.HOST, severity=None)
        alone = step(policy, own, after=6)
        forged = [finding(FindingKind.XID, f"xid {c}", 5, count=50) for c in CODES]
        forged += [finding(FindingKind.CHECK, "check by nhc", 5)]
        combined = step(policy, own, *forged, after=6)
        assert combined is alone or (combined is Step.AVOID and not alone.isolates)


@pytest.mark.parametrize("kind", [FindingKind.FAILURE, FindingKind.CHECK])
def test_shared_token_confirms_no_training_label(kind: FindingKind) -> None:
    shared = finding(kind, "check by nhc")
    later = Nanoseconds(START + 30 * DAY)
    incident = Incident(1, "m1", None, START, findings=(shared,))
    own = replace(incident, findings=(replace(shared, vouched=Provenance.HOST),))
    outcomes = [
        assess_outcome(one, ground_truth=[], service=[], settings=SETTINGS, now=later)
        for one in (incident, own)
    ]
    assert [judged and judged.outcome for judged in outcomes] == [
        Outcome.UNKNOWN,
        Outcome.CONFIRMED,
    ]
