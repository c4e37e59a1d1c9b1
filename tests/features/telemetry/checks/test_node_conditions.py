from __future__ import annotations

import json
from typing import Any

import pytest

from forewarn.features.telemetry.checks.node_conditions import (
    is_node_description,
    is_node_json,
    is_problem_log,
    parse_node_description,
    parse_node_json,
    parse_problem_log,
)
from forewarn.features.telemetry.host_files.file_rows import HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.time_units import SECOND

SEEN, SINCE = "2025-04-05T06:07:08Z", "2025-04-05T06:00:00Z"


def node(name: str, **conditions: str) -> dict[str, Any]:
    parts = [
        {"type": kind, "status": status, "reason": "Why", "message": "what",
         "lastHeartbeatTime": SEEN, "lastTransitionTime": SINCE}
        for kind, status in conditions.items()
    ]  # fmt: skip
    return {"kind": "Node", "metadata": {"name": name}, "status": {"conditions": parts}}


def document(*items: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}, indent=4)


@pytest.mark.parametrize(
    ("kind", "status", "severity"),
    [
        ("Ready", "True", "ok"),
        ("Ready", "False", "error"),
        ("Ready", "Unknown", "warning"),
        ("GpuUnhealthy", "True", "error"),
        ("GpuUnhealthy", "False", "ok"),
        ("AcceleratedHardwareReady", "False", "error"),
        ("AcceleratedHardwareReady", "True", "ok"),
        ("KernelDeadlock", "True", "error"),
        ("KernelDeadlock", "Unknown", "notice"),
        ("NetworkUnavailable", "True", "warning"),
        ("NetworkUnavailable", "False", "ok"),
        ("MemoryPressure", "True", "notice"),
        ("FrequentKubeletRestart", "True", "warning"),
    ],
)
def test_condition_has_severity(kind: str, status: str, severity: str) -> None:
    text = document(node("g1", **{kind: status}))
    assert is_node_json(text)
    (result,), _ = parse_node_json(text)
    assert (result.check, result.severity) == (f"node condition {kind}", severity)
    assert (result.host, result.utc) == ("g1", True)


def test_problem_lasts_until_it_was_seen() -> None:
    text = document(node("g1", KernelDeadlock="True", ReadonlyFilesystem="False"))
    bad, good = parse_node_json(text)[0]
    assert ((bad.time or 0) - (good.time or 0)) // SECOND == 7 * 60 + 8


def test_rows_have_the_nodes_as_machines() -> None:
    text = document(node("g1", GpuUnhealthy="True"), node("g2", GpuUnhealthy="False"))
    rows = read_host_files("nodes", [HostFileText("nodes.json", text, None)])
    assert [row["machine_id"] for row in rows.events] == ["g1", "g2"]
    assert rows.files == {"node_json": 1}


def test_events_about_nodes_are_checks() -> None:
    def event(reason: str, kind: str, about: str = "Node") -> dict[str, Any]:
        return {"kind": "Event", "type": kind, "reason": reason, "message": "x",
                "involvedObject": {"kind": about, "name": "g1"},
                "lastTimestamp": SEEN, "firstTimestamp": SINCE}  # fmt: skip

    text = document(
        event("TaskHung", "Warning"), event("XidError", "Warning"), event("Started", "Normal"),
        event("NodeNotReady", "Normal"), event("NodeReady", "Normal"),
        event("BackOff", "Warning", "Pod"), {"kind": "Pod"},
    )  # fmt: skip
    results, unread = parse_node_json(text)
    assert [(r.check, r.severity) for r in results] == [
        ("node event TaskHung", "warning"),
        ("node event XidError", "error"),
        ("node condition Ready", "error"),
        ("node condition Ready", "ok"),
    ]
    assert unread.counts == {"an object of Kubernetes other than a node or an event": 1}


def test_description_of_several_nodes() -> None:
    one = (
        "Name:               {name}\nRoles:              worker\nConditions:\n"
        "  Type             Status    LastHeartbeatTime                 LastTransitionTime"
        "                Reason        Message\n"
        "  ----             ------    -----------------                 ------------------"
        "                ------        -------\n"
        "  KernelDeadlock   {bad}     Wed, 02 Apr 2025 10:00:00 +0200   Wed, 02 Apr 2025 09:00:00"
        " +0200   DockerHung    task is blocked\n"
        "  Ready            {good}    Wed, 02 Apr 2025 10:00:00 +0200   Wed, 02 Apr 2025 09:00:00"
        " +0200   KubeletReady  kubelet is posting\nAddresses:\n  InternalIP:  10.0.0.1\n"
    )
    text = one.format(name="a", bad="True", good="True") + one.format(
        name="b", bad="False", good="Unknown"
    )
    assert is_node_description(text)
    results, unread = parse_node_description(text)
    clocks = [(r.time or 0) // SECOND % 86_400 // 3600 for r in results]
    assert [(r.host, r.severity) for r in results] == [
        ("a", "error"), ("a", "ok"), ("b", "ok"), ("b", "warning"),
    ]  # fmt: skip
    assert clocks == [8, 7, 7, 8]
    assert not unread


def test_problem_log_has_conditions_and_events() -> None:
    text = (
        "I0402 08:00:00.1 1 log_monitor.go:160] New status generated: &{Source:kernel-monitor "
        "Events:[{Severity:warn Timestamp:2025-04-02 08:00:00.05 +0000 UTC Reason:TaskHung "
        "Message:task a:1 blocked.}] Conditions:[{Type:KernelDeadlock Status:True "
        "Transition:2025-04-02 07:59:59.5 +0000 UTC m=+0.5 Reason:DockerHung Message:task a:1}]}\n"
    )
    assert is_problem_log(text)
    results, _ = parse_problem_log(text)
    assert [(r.check, r.severity) for r in results] == [
        ("node condition KernelDeadlock", "error"),
        ("node event TaskHung", "warning"),
    ]
    assert all(r.time for r in results)


def test_conditions_alone_and_tabs_are_read() -> None:
    conditions = json.dumps(node("g1", Ready="Unknown")["status"]["conditions"], indent=2)
    assert is_node_json(conditions)
    (result,), _ = parse_node_json(conditions)
    assert (result.severity, result.host) == ("warning", None)
    text = (
        "Conditions:\n  Type\t\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage\n"
        "  Ready \t\tUnknown \tThu, 03 Nov 2016 12:18:28 +0000 \tThu, 03 Nov 2016 12:19:12 +0000 "
        "\tNodeStatusUnknown \t\tno status\n"
    )
    assert is_node_description(text)
    (result,), unread = parse_node_description(text)
    assert (result.check, result.severity) == ("node condition Ready", "warning")
    assert (result.time or 0) // SECOND % 60 == 12
    assert not unread
