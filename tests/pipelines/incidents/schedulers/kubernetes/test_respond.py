"""Tests of `forewarn respond` with a real API server, from a finding to the return to service."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipelines.incidents.schedulers.kubernetes.conftest import AUTOSCALER, KARPENTER
from tests.pipelines.incidents.schedulers.kubernetes.kubernetes_site import (
    KubernetesSite,
    respond_later,
)
from tests.pipelines.incidents.schedulers.one_replay import EXPECTED, decision_log
from tests.pipelines.incidents.schedulers.scheduler_site import POLICY

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.response.state.action import ActionState
from forewarn.response.state.step import DrainMode

LLAMA = ("PyTorchJob", "llama")


def test_node_is_drained_and_returned_by_person(site: KubernetesSite) -> None:
    site.cluster.run_pod("llama-0", "node-00001", owner=LLAMA)
    site.report("node-00001")
    decision = site.respond()["node-00001"]
    assert (decision["ruling"], decision["step"], decision["mode"]) == ("act", "drain", "finish")
    machine = site.cluster.machine("node-00001")
    assert (machine.state.value, machine.action) == ("draining", 1)
    assert machine.jobs == ("team/PyTorchJob/llama",)
    assert site.states() == [ActionState.HOLDING]
    events = site.cluster.call("GET", "/api/v1/namespaces/team/events")["items"]
    assert any("forewarn drains node-00001" in event["message"] for event in events)
    site.cluster.end_pod("llama-0")
    site.respond()
    assert site.states() == [ActionState.DRAINED]
    site.undo(1)
    site.respond()
    site.respond()
    assert site.states() == [ActionState.RELEASED]
    assert site.cluster.taints("node-00001") == []
    assert not site.cluster.cordoned("node-00001")


def test_external_cordon_stops_a_drain(site: KubernetesSite) -> None:
    site.cluster.cordon("node-00001", who="tom")
    before = site.cluster.node("node-00001")
    site.report("node-00001")
    assert site.respond()["node-00001"]["ruling"] != "act"
    site.respond()
    assert site.cluster.node("node-00001") == before


def test_condition_of_others_is_a_finding(site: KubernetesSite) -> None:
    site.cluster.report_condition("node-00001", "GpuXidError", "True")
    decision = site.respond()["node-00001"]
    assert (decision["ruling"], decision["step"]) == ("act", "avoid")
    assert site.cluster.machine("node-00001").avoided
    site.respond()
    (incident,) = site.ledger.open_incidents()
    assert [(f.cause, f.count) for f in incident.findings] == [("condition GpuXidError", 1)]


def test_unhealthy_device_is_a_finding_that_its_return_does_not_end(site: KubernetesSite) -> None:
    site.cluster.report_ready("node-00001", "True", healthy_gpus=7)
    site.cluster.report_ready("node-00002", "True", healthy_gpus=0)  # the plugin does not run
    decisions = site.respond()
    assert (decisions["node-00001"]["ruling"], decisions["node-00001"]["step"]) == ("act", "avoid")
    assert "node-00002" not in decisions
    site.cluster.report_ready("node-00001", "True")
    site.respond()
    (incident,) = site.ledger.open_incidents()
    assert [f.cause for f in incident.findings] == ["condition unhealthy nvidia.com/gpu"]
    assert site.cluster.machine("node-00001").avoided


def test_job_that_kueue_moves_counts_as_killed(site: KubernetesSite) -> None:
    for number in (1, 6):
        labels = {"kueue.x-k8s.io/tas": "true"}
        owner = ("Job", f"a-{number}")
        site.cluster.run_pod(f"a-{number}-x", f"node-0000{number}", owner=owner, labels=labels)
        site.report(f"node-0000{number}")
    decisions = site.respond()
    assert decisions["node-00001"]["ruling"] == "act"
    assert "1 job would be ended, and 1 was within" in decisions["node-00006"]["blocked_by"]
    assert [action.mode for action in site.ledger.open_actions()] == [DrainMode.MOVED]
    site.cluster.end_pod("a-1-x")  # Kueue has moved it
    site.respond()
    assert "at most 1" in site.respond()["node-00006"]["blocked_by"]


def test_forged_mark_is_kept_and_reported(site: KubernetesSite) -> None:
    site.cluster.set_taints("node-00001", ("forewarn.io/out", "9" * 60, "NoSchedule"))
    site.report("node-00001")
    site.respond()
    assert "carries a mark of forewarn without an action in the ledger" in site.output.err
    assert len(site.cluster.taints("node-00001")) == 1


def test_limit_keeps_machines_in_service(site: KubernetesSite) -> None:
    for number in range(5):
        site.report(f"node-0000{number}")
    site.respond()
    site.respond()
    assert sum(machine.out for machine in site.cluster.driver.read().machines) == 2


def test_several_removed_taints_are_one_override(site: KubernetesSite) -> None:
    """The breaker trips at two overrides; two machines at once are one."""
    sku = ("sku", "h100", "NoSchedule")
    names = ("node-00001", "node-00006")
    for name in names:
        site.cluster.set_taints(name, sku)
        site.report(name)
    site.respond()
    assert site.states() == [ActionState.DRAINED] * 2
    for name in names:
        site.cluster.set_taints(name, sku, who="tom")
        site.cluster.cordon(name, on=False, who="tom")
    site.report("node-00010", "xid 79")
    decision = site.respond()["node-00010"]
    assert [a.state for i in site.ledger.incidents() for a in i.actions if a.id < 3] == [
        ActionState.OVERRIDDEN
    ] * 2
    assert {o.who for o in site.ledger.overrides(Nanoseconds(0))} == {"tom"}
    assert decision["ruling"] == "act", decision
    assert [site.cluster.taints(name) for name in names] == [[sku]] * 2
    assert [site.cluster.condition(name)[0] for name in names] == ["False"] * 2


def test_uncordon_by_operator_is_no_override(site: KubernetesSite) -> None:
    site.report("node-00001")
    site.respond()
    site.cluster.label("node-00001", upgrade="uncordon-required")
    site.cluster.cordon("node-00001", on=False, who="gpu-operator")
    site.respond()
    assert not site.cluster.cordoned("node-00001")
    site.cluster.label("node-00001", upgrade="upgrade-done")
    site.respond()
    assert site.cluster.cordoned("node-00001")
    assert site.states() == [ActionState.DRAINED]


def test_vanished_node_was_replaced_by_others(site: KubernetesSite) -> None:
    site.report("node-00001")
    site.respond()
    site.cluster.call("DELETE", "/api/v1/nodes/node-00001")
    site.respond()
    assert site.states() == [ActionState.RELEASED]
    assert site.ledger.action_states(1)[-1].detail == "replaced_by_other: the machine is gone"
    site.cluster.create_node("node-00001", 1)
    site.respond()
    assert site.cluster.taints("node-00001") == []


@pytest.mark.parametrize("mode_at_end", ["act", "observe"])
def test_node_is_kept_while_evidence_is_collected(
    mode_at_end: str, site: KubernetesSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, kept = site.cluster, "node-00001"
    cluster.label(kept, karpenter="gpu", eks="gpu")
    cluster.label("node-00002", karpenter="gpu")
    site.report(kept, "xid 13", minutes_ago=0)
    site.respond()
    assert cluster.holds(kept) == {KARPENTER, AUTOSCALER}
    assert cluster.holds("node-00002") == set()  # nothing was reported
    respond_later(site, monkeypatch, 9 * MINUTE)
    assert cluster.holds(kept) == {KARPENTER, AUTOSCALER}
    config = Path(site.config)
    config.write_text(config.read_text().replace('mode = "act"', f'mode = "{mode_at_end}"'))
    respond_later(site, monkeypatch, 11 * MINUTE)
    assert cluster.holds(kept) == set()
    assert "forewarn.io/collecting" not in cluster.node(kept)["metadata"]["labels"]


def test_kept_budget_goes_to_a_person(
    site: KubernetesSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.cluster.run_pod("llama-0", "node-00001", owner=LLAMA)
    site.cluster.protect("llama-0", 0)
    site.report("node-00001", "xid 79")
    decision = site.respond()["node-00001"]
    assert (decision["ruling"], decision["mode"]) == ("act", "deadline")
    assert site.cluster.pods() == ["llama-0"]
    respond_later(site, monkeypatch, 50 * MINUTE)
    assert "a person has to end jobs (a disruption budget keeps team/llama-0" in site.output.err
    assert site.cluster.pods() == ["llama-0"]
    site.cluster.call("DELETE", "/apis/policy/v1beta1/namespaces/team/poddisruptionbudgets/llama-0")
    respond_later(site, monkeypatch, 51 * MINUTE)
    assert site.cluster.pods() == []
    assert site.cluster.machine("node-00001").state.value == "drained"


@pytest.mark.parametrize("losses", [["PATCH"], ["PATCH", "PATCH"]])
def test_lost_answers_lose_no_drain(site: KubernetesSite, losses: list[str]) -> None:
    site.report("node-00001")
    site.server.losses[:] = losses
    for _ in range(3):
        site.respond()
    assert site.states() == [ActionState.DRAINED]
    assert site.cluster.taints("node-00001") == [("forewarn.io/out", "1", "NoSchedule")]
    site.server.losses[:] = losses
    site.undo(1)
    for _ in range(3):
        site.respond()
    assert site.states() == [ActionState.RELEASED]
    assert site.cluster.taints("node-00001") == []


def test_killed_server_loses_nothing(site: KubernetesSite) -> None:
    site.report("node-00001")
    site.respond()
    site.cluster.kill_server()
    site.report("node-00006")
    site.respond(2)
    assert "does not answer" in site.output.err
    site.cluster.start_server()
    site.respond()
    assert site.states() == [ActionState.DRAINED] * 2
    out = [m.name for m in site.cluster.driver.read().machines if m.out]
    assert out == ["node-00001", "node-00006"]


def test_removed_avoid_is_overridden(site: KubernetesSite) -> None:
    names = ("node-00001", "node-00006")
    for name in names:
        site.report(name)
    text = POLICY.replace('"drain"', '"avoid"')
    (site.folder / "policy.toml").write_text(text)
    for _ in range(2):
        site.respond()
    assert [site.cluster.machine(name).avoided for name in names] == [True, True]
    for name in names:  # Slurm loses all weights at once; the API loses nothing
        site.cluster.set_taints(name)
    site.respond()
    assert site.states() == [ActionState.OVERRIDDEN] * 2
    assert [site.cluster.machine(name).avoided for name in names] == [False, False]


def test_decision_log_is_that_of_every_scheduler(site: KubernetesSite) -> None:
    assert decision_log(site, site.cluster.until) == EXPECTED
