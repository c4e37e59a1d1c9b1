"""Pools whose drains need a spare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.response.decision.test_decide import (
    AT_RISK,
    MACHINE,
    UNCERTAIN,
    XID,
    PlainPolicy,
    drain,
    incident,
    situation,
)

from forewarn.response.decision.decide import decide
from forewarn.response.policy.certain_damage import is_certain
from forewarn.response.state.action import ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, Severity
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.pool import Limits, Pool, PoolMode
from forewarn.response.state.step import DrainMode, Step

LOOSE = Limits(share=1.0, rack=100, job=100, cause=100, fleet_rate=100, killed_jobs=100)
OPEN_STATES = [state for state in ActionState if drain(state=state).open]
machines = st.builds(
    replace,
    st.just(MACHINE),
    jobs=st.sampled_from([(), ("9",)]),
    gpus=st.sampled_from([0, 8]),
    state=st.sampled_from(ServiceState),
    avoided=st.booleans(),
    pool=st.sampled_from(["train", "other"]),
)


def decided(
    *findings: Finding, others: list[Machine] | None = None, needs_spare: bool = True, **more: Any
) -> Decision:
    """Return the decision about n0, which runs a job, among other machines."""
    fleet = [replace(MACHINE, jobs=("7",)), *(others or [])]
    pool = Pool("train", more.pop("mode", PoolMode.ACT), limits=LOOSE, needs_spare=needs_spare)
    values = {"fleet": {m.name: m for m in fleet}, "pools": {"train": pool}, **more}
    return decide(incident(*findings), situation(**values))


def named(others: list[Machine]) -> list[Machine]:
    return [replace(other, name=f"n{number}") for number, other in enumerate(others, start=1)]


IDLE = named([MACHINE])
BUSY = named([replace(MACHINE, jobs=("8",))])


def test_idle_machine_is_a_spare() -> None:
    decision = decided(XID, others=IDLE)
    assert (decision.ruling, decision.step) == (Ruling.ACT, Step.DRAIN)


def test_certain_damage_without_spare_is_proposed_as_drain() -> None:
    decision = decided(XID, others=BUSY)
    shown = (decision.ruling, decision.step, decision.mode)
    assert shown == (Ruling.PROPOSE, Step.DRAIN, DrainMode.FINISH)
    assert decision.reason.endswith("mode finish: no spare is left in pool train")


@pytest.mark.parametrize("evidence", [AT_RISK, UNCERTAIN], ids=["prediction", "xid 119"])
def test_other_evidence_without_spare_is_proposed_as_avoid(evidence: Finding) -> None:
    decision = decided(evidence, others=BUSY)
    assert (decision.ruling, decision.step, decision.mode) == (Ruling.PROPOSE, Step.AVOID, None)
    assert decision.reason.endswith("at most avoid: no spare is left in pool train")


def test_mildest_step_needs_approval_without_spare() -> None:
    policy = PlainPolicy(mode=DrainMode.FINISH, causes={"xid 79": Severity.ERROR})
    decision = decided(XID, others=BUSY, policy=policy)
    assert decision.ruling is Ruling.PROPOSE
    assert decision.reason == "xid 79: drain; needs approval: no spare is left in pool train"


def test_draining_machine_needs_the_spare_itself() -> None:
    other = drain(machine="n2", state=ActionState.HOLDING)
    fleet = [*IDLE, replace(MACHINE, name="n2", jobs=("8",))]
    assert "no spare is left in pool train (1 for 1 that are draining)" in (
        decided(XID, others=fleet, recent=[other]).reason
    )
    drained = replace(other, state=ActionState.DRAINED)
    assert decided(XID, others=fleet, recent=[drained]).ruling is Ruling.ACT


@given(
    others=st.lists(machines, max_size=6).map(named),
    drains=st.lists(st.tuples(st.integers(1, 6), st.sampled_from(OPEN_STATES)), max_size=4),
    evidence=st.sampled_from([AT_RISK, UNCERTAIN, XID]),
    mode=st.sampled_from(PoolMode),
)
@settings(max_examples=200, deadline=None)
def test_shortage_only_makes_decisions_milder(
    others: list[Machine],
    drains: list[tuple[int, ActionState]],
    evidence: Finding,
    mode: PoolMode,
) -> None:
    recent = [
        drain(number + 20, machine=f"n{name}", state=state)
        for number, (name, state) in enumerate(drains)
    ]
    before, after = (
        decided(evidence, others=others, needs_spare=flag, recent=recent, mode=mode)
        for flag in (False, True)
    )
    draining = {action.machine for action in recent if action.state is not ActionState.DRAINED}
    spares = [
        other
        for other in others
        if (other.pool, other.state, other.jobs) == ("train", ServiceState.IN_SERVICE, ())
        and other.gpus
        and not other.avoided
        and other.name not in draining
    ]
    if len(spares) > len(draining):
        assert after == before
        return
    assert after.step is (Step.DRAIN if is_certain(evidence) else Step.AVOID)
    assert after.step.rank <= before.step.rank
    assert after.ruling is not Ruling.ACT
    assert "no spare is left in pool train" in after.reason
