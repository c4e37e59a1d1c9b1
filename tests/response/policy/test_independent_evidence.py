"""No finding confirms itself: what a second finding adds, over generated combinations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.evidence_kind import EvidenceKind
from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.response.decision.decide import decide
from forewarn.response.decision.situation import Situation
from forewarn.response.policy.policy import Policy
from forewarn.response.state.decision import Decision
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident
from forewarn.response.state.independent_evidence import independent_evidence
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.pool import Limits, Pool, PoolMode
from forewarn.response.state.step import Step

POLICY = load_policy()
NOW = Nanoseconds(100 * DAY)
BUSY = Machine("n0", ServiceState.IN_SERVICE, gpus=8, pool="train")
FLEET = {f"n{number}": replace(BUSY, name=f"n{number}") for number in range(50)}
POOLS = {"train": Pool("train", PoolMode.ACT, 0.0, Limits(share=0.04))}


def finding(kind: FindingKind, source: str = "detect", **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "id": f"{source} {kind} {changes}",
        "cause": str(kind),
        "machine": "n0",
        "at": Nanoseconds(NOW - 20 * MINUTE),
        "valid_until": Nanoseconds(NOW + HOUR),
        **changes,
    }
    return Finding(source=source, kind=kind, **values)


def diagnosis(*read: str, source: str = "diagnose", **changes: Any) -> Finding:
    evidence = {"evidence_from": list(read)}
    return finding(FindingKind.DIAGNOSIS, source, evidence=evidence, job="4711", **changes)


def decided(*findings: Finding, policy: Policy = POLICY) -> Decision:
    about = Incident(1, "n0", None, Nanoseconds(NOW - DAY), findings=findings)
    return decide(about, Situation(now=NOW, fleet=FLEET, pools=POOLS, policy=policy))


VERDICT = finding(FindingKind.VERDICT, job="4711")
XID = finding(FindingKind.XID, "records", cause="xid 94")
CHECK = finding(FindingKind.CHECK, "nhc", severity=Severity.WARNING)


@pytest.mark.parametrize(
    ("read", "second", "step"),
    [
        (["dump"], None, Step.AVOID),
        (["dump"], VERDICT, Step.DRAIN),
        (["dump"], XID, Step.DRAIN),
        (["dump", "kernel_log"], XID, Step.AVOID),
        (["dump", "metrics"], VERDICT, Step.AVOID),
        (["log"], diagnosis("check", source="nodes"), Step.DRAIN),
        (["log"], diagnosis("log", "dump", id="later"), Step.AVOID),
        (["metrics"], VERDICT, Step.AVOID),
        (["list"], VERDICT, Step.AVOID),
        (["dump", "list"], VERDICT, Step.DRAIN),
        (["dump", "list"], finding(FindingKind.AT_RISK, "at_risk"), Step.AVOID),
        (["list"], diagnosis("metrics", source="somebody"), Step.AVOID),
        (["metrics"], XID, Step.DRAIN),
        ([], XID, Step.AVOID),
        (["tea leaves", "dump"], XID, Step.AVOID),
        (["dump"], finding(FindingKind.AT_RISK, "at_risk"), Step.AVOID),
        (["dump"], finding(FindingKind.REPORT, "someone"), Step.AVOID),
    ],
)
def test_diagnosis_needs_evidence_it_has_not_read(
    read: list[str], second: Finding | None, step: Step
) -> None:
    findings = [diagnosis(*read), *([second] if second else [])]
    assert decided(*findings).step is step


def test_node_check_confirms_verdict() -> None:
    assert decided(VERDICT).step is Step.TELL
    checked = decided(VERDICT, diagnosis("check", source="nodes"))
    assert checked.step is Step.DRAIN
    assert "confirmed by" in checked.reason


kinds = st.frozensets(st.sampled_from(EvidenceKind))
anything = st.one_of(
    st.builds(diagnosis),
    st.builds(lambda read, source: diagnosis(*read, source=source), kinds, st.sampled_from("ab")),
    st.builds(finding, st.sampled_from(FindingKind), st.sampled_from("ab")),
)
measured = st.one_of(
    st.builds(
        lambda read, source: diagnosis(*read, source=source),
        st.sampled_from([(), ("metrics",), ("metrics", "list"), ("list",)]),
        st.sampled_from(["diagnose", "nodes", "somebody"]),
    ),
    st.builds(
        lambda source, severity: finding(
            FindingKind.VERDICT, source, severity=severity, job="4711"
        ),
        st.sampled_from(["detect", "somebody"]),
        st.sampled_from([None, *Severity]),
    ),
    st.builds(
        lambda chance: finding(FindingKind.AT_RISK, "at_risk", evidence={"probability": chance}),
        st.floats(0.0, 0.49),
    ),
    st.builds(finding, st.sampled_from([FindingKind.BLIND, FindingKind.EXTERNAL_DRAIN])),
)


rules = st.fixed_dictionaries(
    {
        "severity": st.sampled_from(Severity),
        "step": st.sampled_from(Step),
        "alone": st.sampled_from(Step),
        "confirmed_by": kinds.map(lambda some: some - {EvidenceKind.LIST}),
    }
)
several = st.lists(measured, min_size=1, max_size=6, unique_by=lambda f: f.id)


@given(several, rules, rules)
def test_metrics_alone_never_drain(
    findings: list[Finding], verdicts: dict[str, Any], diagnoses: dict[str, Any]
) -> None:
    changes = {FindingKind.VERDICT: verdicts, FindingKind.DIAGNOSIS: diagnoses}
    changed = {kind: replace(POLICY.kinds[kind], **rule) for kind, rule in changes.items()}
    policy = replace(POLICY, kinds={**POLICY.kinds, **changed})
    assert not decided(*findings, policy=policy).step.isolates
    choice = policy.step_for(Incident(1, "n0", None, NOW, findings=tuple(findings)), [], (), NOW)
    assert not choice.step.isolates


@given(anything, anything)
def test_second_evidence_is_never_read_twice(first: Finding, other: Finding) -> None:
    added = independent_evidence(other, first)
    assert independent_evidence(first, first) == frozenset()
    assert EvidenceKind.LIST not in added
    assert not added or not other.predicts
    if first.kind is other.kind is FindingKind.DIAGNOSIS:
        assert added.isdisjoint(first.evidence.get("evidence_from", EvidenceKind))
        assert added <= set(other.evidence.get("evidence_from", ()))


@given(kinds)
def test_xid_confirms_unless_kernel_log_was_read(read: frozenset[EvidenceKind]) -> None:
    confirmed = decided(diagnosis(*read), XID).step.isolates
    assert confirmed == (bool(read) and EvidenceKind.KERNEL_LOG not in read)
