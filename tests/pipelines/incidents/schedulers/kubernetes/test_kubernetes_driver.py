"""Tests of the driver with a real API server, and others who change nodes at the same time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.pipelines.incidents.schedulers.kubernetes.conftest import AUTOSCALER, KARPENTER

from forewarn.pipelines.incidents.schedulers.driver import DriverError, DriverTimeoutError
from forewarn.response.state.action import Action
from forewarn.response.state.machine import ServiceState
from forewarn.response.state.step import DrainMode, Step

Drain = Callable[..., Action]
WHY = "at risk: 0.41 within 24 h (ecc=12,\n'hot')"
REASON = "forewarn:17 at risk: 0.41 within 24 h (ecc=12, 'hot')"
JOB = ("PyTorchJob", "llama")


def test_read_returns_the_fleet(kubernetes: Any) -> None:
    for number in (2, 3):
        kubernetes.run_pod(f"llama-{number}", f"node-0000{number}", owner=JOB)
    kubernetes.run_pod("metrics", "node-00004", owner=("DaemonSet", "metrics"))
    kubernetes.run_pod("driver", "node-00004", namespace="gpu-operator")
    fleet = kubernetes.driver.read()
    machines = {machine.name: machine for machine in fleet.machines}
    assert len(machines) == 16
    assert {machine.gpus for machine in machines.values()} == {8}
    assert {machine.state for machine in machines.values()} == {ServiceState.IN_SERVICE}
    assert machines["node-00002"].jobs == machines["node-00003"].jobs == ("team/PyTorchJob/llama",)
    assert machines["node-00004"].jobs == ()
    assert (machines["node-00003"].rack, machines["node-00004"].rack) == ("r0", "r1")
    assert (machines["node-00007"].switch, machines["node-00008"].switch) == ("s0", "s1")
    assert [name for name in machines if machines[name].opted_out] == ["node-00015"]
    assert fleet.clock is not None
    assert abs(fleet.clock - fleet.at) < 60e9


def test_busy_node_is_draining_then_drained(kubernetes: Any, drain: Drain) -> None:
    kubernetes.run_pod("llama-0", "node-00001", owner=JOB)
    kubernetes.driver.apply(drain("node-00001"), why=WHY)
    machine = kubernetes.machine("node-00001")
    assert (machine.state, machine.action) == (ServiceState.DRAINING, 17)
    assert (machine.reason, machine.unfinished) == (REASON, None)
    assert kubernetes.taints("node-00001") == [("forewarn.io/out", "17", "NoSchedule")]
    assert kubernetes.cordoned("node-00001")
    assert kubernetes.condition("node-00001") == ("True", REASON)
    kubernetes.end_pod("llama-0")
    assert kubernetes.machine("node-00001").state is ServiceState.DRAINED
    kubernetes.driver.reserve(drain("node-00001"))
    before = kubernetes.node("node-00001")
    kubernetes.driver.apply(drain("node-00001"), why="something else")  # set already
    assert kubernetes.node("node-00001") == before


def test_undo_leaves_no_trace(kubernetes: Any, drain: Drain) -> None:
    others = ("sku", "h100", "NoSchedule")
    kubernetes.set_taints("node-00007", others)
    kubernetes.driver.apply(drain("node-00007"), why=WHY)
    kubernetes.driver.undo(drain("node-00007", 16))
    assert kubernetes.machine("node-00007").action == 17
    kubernetes.driver.undo(drain("node-00007"))
    kubernetes.driver.undo(drain("node-00007"))
    assert kubernetes.taints("node-00007") == [others]
    assert not kubernetes.cordoned("node-00007")
    assert kubernetes.condition("node-00007") == ("False", "action 17 has ended")
    assert "annotations" not in kubernetes.node("node-00007")["metadata"]
    machine = kubernetes.machine("node-00007")
    assert (machine.out, machine.unfinished) == (False, None)


@pytest.mark.parametrize("mark", ["cordon", "taint", "quarantine", "upgrade"])
def test_external_drain_is_not_changed(kubernetes: Any, drain: Drain, mark: str) -> None:
    name = "node-00004"
    if mark == "taint":
        kubernetes.set_taints(name, ("acme.io/quarantine", "ecc", "NoSchedule"))
    else:
        kubernetes.cordon(name, who="tom")
    if mark == "quarantine":
        body = {"metadata": {"annotations": {"quarantineHealthEvent": "[]"}}}
        kubernetes.call("PATCH", f"/api/v1/nodes/{name}", body)
    if mark == "upgrade":
        kubernetes.label(name, upgrade="drain-required")
    reason = {
        "cordon": "cordoned",
        "taint": "taint acme.io/quarantine=ecc:NoSchedule",
        "quarantine": "quarantined by NVSentinel",
        "upgrade": "driver upgrade",
    }[mark]
    before = kubernetes.node(name)
    for action in (drain(name), drain(name, step=Step.AVOID)):
        with pytest.raises(DriverError, match=f"is drained externally by tom: {reason}"):
            kubernetes.driver.apply(action, why=WHY)
        kubernetes.driver.undo(action)
    assert kubernetes.node(name) == before
    machine = kubernetes.machine(name)
    assert (machine.state, machine.action) == (ServiceState.DRAINED, None)
    assert (machine.reason, machine.reason_by) == (reason, "tom")
    assert machine.reason_at is not None


def test_ordinary_taint_is_no_drain(kubernetes: Any) -> None:
    kubernetes.set_taints("node-00004", ("nvidia.com/gpu", "present", "NoSchedule"))
    body = {"metadata": {"annotations": {"quarantineHealthEvent": "[]"}}}  # a dry run
    kubernetes.call("PATCH", "/api/v1/nodes/node-00004", body)
    assert kubernetes.machine("node-00004").state is ServiceState.IN_SERVICE


def test_conditions_of_others_are_problems(kubernetes: Any, drain: Drain) -> None:
    name = "node-00004"
    kubernetes.driver.apply(drain(name), why=WHY)
    for kind, status in (
        *(("GpuXidError", "True"), ("AcceleratedHardwareReady", "False")),
        *(("GpuLost", "False"), ("GpuHealthy", "True"), ("KernelDeadlock", "True")),
    ):
        kubernetes.report_condition(name, kind, status)
    assert kubernetes.machine(name).problems == {
        "GpuXidError": "Xid: Xid 79 on GPU 3",
        "AcceleratedHardwareReady": "Xid: Xid 79 on GPU 3",
    }


@pytest.mark.parametrize("value", ["", "x", "9" * 60])
def test_forged_mark_takes_the_node_out(kubernetes: Any, drain: Drain, value: str) -> None:
    kubernetes.set_taints("node-00004", ("forewarn.io/out", value, "NoSchedule"))
    machine = kubernetes.machine("node-00004")
    assert (machine.out, machine.action) == (True, int(value) if value.isdigit() else None)
    kubernetes.driver.undo(drain("node-00004"))
    assert len(kubernetes.taints("node-00004")) == 1


def test_silent_node_is_down(kubernetes: Any, drain: Drain) -> None:
    kubernetes.report_ready("node-00004", "Unknown")
    machine = kubernetes.machine("node-00004")
    assert (machine.state, machine.reason) == (ServiceState.DOWN, "the kubelet does not report")
    kubernetes.driver.apply(drain("node-00004"), why=WHY)
    assert kubernetes.machine("node-00004").action == 17


def test_removed_taint_names_the_person(kubernetes: Any, drain: Drain) -> None:
    others = ("sku", "h100", "NoSchedule")
    kubernetes.set_taints("node-00005", others)
    kubernetes.driver.apply(drain("node-00005"), why=WHY)
    kubernetes.set_taints("node-00005", others, who="tom")
    machine = kubernetes.machine("node-00005")
    assert machine.action is None
    assert machine.reason == "cordoned by forewarn, and its taint was removed"
    assert machine.reason_by == "tom"
    assert machine.unfinished == 17  # the condition
    kubernetes.driver.undo(drain("node-00005"))
    assert kubernetes.cordoned("node-00005")  # the person has it
    assert kubernetes.condition("node-00005")[0] == "False"
    kubernetes.cordon("node-00005", on=False, who="tom")
    assert not kubernetes.machine("node-00005").out


def test_later_cordon_of_others_is_kept(kubernetes: Any, drain: Drain) -> None:
    kubernetes.driver.apply(drain("node-00006"), why=WHY)
    kubernetes.cordon("node-00006", on=False)
    kubernetes.cordon("node-00006", who="tom")
    kubernetes.driver.undo(drain("node-00006"))
    machine = kubernetes.machine("node-00006")
    assert (machine.reason, machine.reason_by) == ("cordoned", "tom")
    assert kubernetes.taints("node-00006") == []


def test_lost_cordon_waits_for_driver_upgrade(kubernetes: Any, drain: Drain) -> None:
    action = drain("node-00006")
    kubernetes.driver.apply(action, why=WHY)
    kubernetes.label("node-00006", upgrade="uncordon-required")
    kubernetes.cordon("node-00006", on=False, who="gpu-operator")
    machine = kubernetes.machine("node-00006")
    assert (machine.action, machine.unfinished) == (17, None)
    with pytest.raises(DriverError, match="node-00006 is in a driver upgrade"):
        kubernetes.driver.undo(action)
    kubernetes.label("node-00006", upgrade="upgrade-done")
    assert kubernetes.machine("node-00006").unfinished == 17
    kubernetes.driver.apply(action, why=WHY)
    assert kubernetes.cordoned("node-00006")
    assert kubernetes.machine("node-00006").unfinished is None


def test_avoid_is_a_soft_taint(kubernetes: Any, drain: Drain) -> None:
    action = drain("node-00000", 16, step=Step.AVOID)
    kubernetes.driver.apply(action, why=WHY)
    assert kubernetes.taints("node-00000") == [("forewarn.io/avoid", "16", "PreferNoSchedule")]
    machine = kubernetes.machine("node-00000")
    assert (machine.avoided, machine.out, machine.unfinished) == (True, False, None)
    kubernetes.driver.apply(drain("node-00000"), why=WHY)
    kubernetes.driver.undo(drain("node-00000"))
    machine = kubernetes.machine("node-00000")
    assert (machine.avoided, machine.out, machine.unfinished) == (True, False, 16)
    kubernetes.driver.apply(action, why=WHY)
    assert kubernetes.machine("node-00000").unfinished is None
    kubernetes.driver.undo(action)
    assert kubernetes.taints("node-00000") == []


@pytest.mark.parametrize("name", ["ALL", "node-00000,node-00001", "nope", "", "..", "a/status"])
def test_name_must_be_a_single_node(kubernetes: Any, drain: Drain, name: str) -> None:
    calls: list[Callable[[], None]] = [
        lambda: kubernetes.driver.apply(drain(name), why=WHY),
        lambda: kubernetes.driver.reserve(drain(name)),
        lambda: kubernetes.driver.evict(drain(name), ("1",)),
    ]
    for call in calls:
        with pytest.raises(DriverError, match=r"node|drained by action"):
            call()
    assert not any(machine.out for machine in kubernetes.driver.read().machines)


# --- conflicts and lost answers -------------------------------------------------------------------


def test_conflicting_change_is_kept(kubernetes: Any, drain: Drain) -> None:
    server = kubernetes.server
    changes: list[str] = []

    def change_first(request: str) -> None:
        if request.startswith("PATCH") and not request.endswith("status") and not changes:
            changes.append(request)
            kubernetes.set_taints("node-00003", ("sku", "h100", "NoSchedule"))

    server.before = change_first
    replace(kubernetes.driver, server=server).apply(drain("node-00003"), why=WHY)
    keys = [key for key, _, _ in kubernetes.taints("node-00003")]
    assert (changes, keys) == (["PATCH /api/v1/nodes/node-00003"], ["sku", "forewarn.io/out"])


def test_person_wins_between_reading_and_patch(kubernetes: Any, drain: Drain) -> None:
    server = kubernetes.server

    def cordon_first(request: str) -> None:
        if request.startswith("PATCH") and not request.endswith("status"):
            kubernetes.cordon("node-00003", who="tom")

    server.before = cordon_first
    with pytest.raises(DriverError, match="drained externally by tom: cordoned"):
        replace(kubernetes.driver, server=server).apply(drain("node-00003"), why=WHY)
    assert kubernetes.taints("node-00003") == []


def test_endless_conflicts_leave_result_unknown(kubernetes: Any, drain: Drain) -> None:
    server = kubernetes.server
    changes: list[str] = []

    def change(request: str) -> None:
        if request.startswith("PATCH") and not request.endswith("status"):
            changes.append(request)
            kubernetes.label("node-00003", rack=f"r{len(changes)}")

    server.before = change
    with pytest.raises(DriverTimeoutError, match="others changed node-00003 5 times"):
        replace(kubernetes.driver, server=server).apply(drain("node-00003"), why=WHY)
    assert kubernetes.taints("node-00003") == []


def test_lost_answer_is_unknown_then_read(kubernetes: Any, drain: Drain) -> None:
    for losses in (["PATCH"], ["PATCH", "PATCH"]):
        server = kubernetes.server
        server.losses[:] = losses
        driver = replace(kubernetes.driver, server=server)
        for _ in losses:
            with pytest.raises(DriverTimeoutError, match="no answer"):
                driver.apply(drain("node-00002"), why=WHY)
        driver.apply(drain("node-00002"), why=WHY)
        assert kubernetes.machine("node-00002").action == 17
        server.losses[:] = losses
        for _ in losses:
            with pytest.raises(DriverTimeoutError, match="no answer"):
                driver.undo(drain("node-00002"))
        driver.undo(drain("node-00002"))
        assert kubernetes.taints("node-00002") == []
        assert not kubernetes.cordoned("node-00002")


def test_stopped_server_is_a_timeout(kubernetes: Any) -> None:
    server = kubernetes.server
    server.timeout = 0.3
    kubernetes.send(signal.SIGSTOP)
    try:
        with pytest.raises(DriverTimeoutError, match="no answer"):
            replace(kubernetes.driver, server=server).read()
    finally:
        kubernetes.send(signal.SIGCONT)
    kubernetes.until(lambda: len(kubernetes.driver.read().machines) == 16, "server")


def test_marks_survive_a_killed_server(kubernetes: Any, drain: Drain) -> None:
    kubernetes.driver.apply(drain("node-00002"), why=WHY)
    before = kubernetes.driver.read()
    kubernetes.kill_server()
    with pytest.raises(DriverTimeoutError, match="the API server https://127"):
        kubernetes.driver.read()
    kubernetes.start_server()
    after = kubernetes.driver.read()
    assert (after.machines, after.controller) == (before.machines, before.controller)


# --- jobs -----------------------------------------------------------------------------------------


def test_evict_ends_jobs_of_its_node(kubernetes: Any, drain: Drain) -> None:
    kubernetes.run_pod("llama-0", "node-00008", owner=JOB)
    kubernetes.run_pod("llama-1", "node-00009", owner=JOB)
    kubernetes.run_pod("other", "node-00008", owner=("Job", "other"))
    kubernetes.run_pod("metrics", "node-00008", owner=("DaemonSet", "metrics"))
    jobs = ("team/PyTorchJob/llama", "team/DaemonSet/metrics", "; reboot")
    with pytest.raises(DriverError, match="not drained by action 17"):
        kubernetes.driver.evict(drain("node-00008"), jobs)
    kubernetes.driver.apply(drain("node-00008"), why=WHY)
    kubernetes.driver.evict(drain("node-00008"), jobs)
    assert kubernetes.pods() == ["llama-1", "metrics", "other"]


def test_protected_pod_is_kept_and_named(kubernetes: Any, drain: Drain) -> None:
    kubernetes.run_pod("llama-0", "node-00008", owner=JOB)
    kubernetes.run_pod("free", "node-00008", owner=JOB)
    kubernetes.protect("llama-0", 0)
    kubernetes.driver.apply(drain("node-00008"), why=WHY)
    with pytest.raises(DriverError, match="a disruption budget keeps team/llama-0 "):
        kubernetes.driver.evict(drain("node-00008"), ("team/PyTorchJob/llama",))
    assert kubernetes.pods() == ["llama-0"]
    now = drain("node-00008", mode=DrainMode.NOW)
    kubernetes.driver.evict(now, ("team/PyTorchJob/llama",))
    assert kubernetes.pods() == []


def test_eviction_waits_for_the_budget(kubernetes: Any, drain: Drain) -> None:
    kubernetes.run_pod("llama-0", "node-00008", owner=JOB)
    kubernetes.protect("llama-0", 0)
    server = kubernetes.server
    tries: list[str] = []

    def free_budget(request: str) -> None:
        if request.endswith("eviction"):
            tries.append(request)
            if len(tries) == 2:
                kubernetes.call(
                    "DELETE", "/apis/policy/v1beta1/namespaces/team/poddisruptionbudgets/llama-0"
                )

    server.before = free_budget
    driver = replace(kubernetes.driver, server=server)
    driver.apply(drain("node-00008"), why=WHY)
    driver.evict(drain("node-00008"), ("team/PyTorchJob/llama",))
    assert (len(tries), kubernetes.pods()) == (2, [])


def test_notice_is_an_event_of_the_job(kubernetes: Any) -> None:
    kubernetes.run_pod("llama-0", "node-00008", owner=JOB)
    kubernetes.driver.notify(("team/PyTorchJob/llama", "team/Job/ended"), "node-00008 leaves")
    events = kubernetes.call("GET", "/api/v1/namespaces/team/events")["items"]
    assert [(e["involvedObject"]["name"], e["message"]) for e in events] == [
        ("llama-0", "node-00008 leaves")
    ]


def test_notice_is_an_annotation_of_the_pods(kubernetes: Any) -> None:
    def shown(pod: str) -> str | None:
        path = f"/api/v1/namespaces/team/pods/{pod}"
        annotations = kubernetes.call("GET", path)["metadata"].get("annotations") or {}
        notice: str | None = annotations.get("forewarn.io/notice")
        return notice

    for pod, owner in (("llama-0", "llama"), ("llama-1", "llama"), ("other-0", "other")):
        kubernetes.run_pod(pod, "node-00001", owner=("PyTorchJob", owner))
    kubernetes.driver.publish({"team/PyTorchJob/llama": '{"save_now": true}'})
    notices = [shown(pod) for pod in ("llama-0", "llama-1", "other-0")]
    assert notices == ['{"save_now": true}', '{"save_now": true}', None]
    kubernetes.driver.publish({})
    assert shown("llama-0") is None


def test_hold_leaves_requests_of_others(kubernetes: Any) -> None:
    """Nodes without an autoscaler are not changed; what a person has set stays."""
    names = ("node-00001", "node-00002", "node-00003")
    kubernetes.label(names[1], karpenter="gpu")
    kubernetes.annotate(names[1], karpenter="true")
    kubernetes.label(names[2], karpenter="gpu", eks="gpu")
    kubernetes.annotate(names[2], karpenter="true")
    before = [kubernetes.node(name) for name in names]
    kubernetes.driver.hold(names)
    assert [kubernetes.node(name) for name in names[:2]] == before[:2]
    assert kubernetes.holds(names[2]) == {KARPENTER, AUTOSCALER}
    kubernetes.driver.hold([])
    assert kubernetes.holds(names[2]) == {KARPENTER}
    assert kubernetes.node(names[2])["metadata"]["labels"] == before[2]["metadata"]["labels"]


def test_hold_that_a_person_takes_over_stays(kubernetes: Any) -> None:
    kubernetes.label("node-00001", eks="gpu")
    kubernetes.driver.hold(["node-00001"])
    kubernetes.annotate("node-00001", autoscaler=None)
    kubernetes.annotate("node-00001", autoscaler="true")
    kubernetes.driver.hold([])
    assert kubernetes.holds("node-00001") == {AUTOSCALER}


def test_block_is_refused_with_the_line_to_paste(kubernetes: Any) -> None:
    with pytest.raises(DriverError, match=r'add to the pod template of team/Job/x: {"affinity"'):
        kubernetes.driver.exclude("team/Job/x", "node-00001")
