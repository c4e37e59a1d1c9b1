"""Nodes of the API as machines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import Json
from forewarn.pipelines.incidents.schedulers.kubernetes.external_marks import (
    ExternalMark,
    changed_by_others,
    external_mark,
    is_upgrading,
    ready_status,
    reported_problems,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.managed_fields import last_change
from forewarn.pipelines.incidents.schedulers.kubernetes.node_marks import (
    AVOID_TAINT,
    OUT_TAINT,
    condition_action,
    mark_text,
    marked_by,
)
from forewarn.response.state.machine import Machine, ServiceState

__all__ = ["NodeReading"]

_GPU_RESOURCE = re.compile(r"(nvidia|amd)\.com/gpu|huawei\.com/Ascend\w+")
_GPU_COUNT: Final = "nvidia.com/gpu.count"  # label; stays while the device plugin is down


@dataclass(frozen=True, slots=True)
class NodeReading:
    """How nodes are read.

    Attributes
    ----------
    rack_label, switch_label : str
        Labels that name the rack and the switch of a node.
    drain_taints : tuple of str
        Patterns of the keys of taints by which others take nodes out of service.
    problem_conditions : tuple of str
        Patterns of the types of conditions by which others report problems.
    """

    rack_label: str
    switch_label: str
    drain_taints: tuple[str, ...]
    problem_conditions: tuple[str, ...]

    def machine(self, node: Json, jobs: tuple[str, ...], *, moves_jobs: bool) -> Machine:
        """Convert a node to a machine; it belongs to no pool yet."""
        metadata = node["metadata"]
        labels: Mapping[str, str] = metadata.get("labels") or {}
        action, external = marked_by(node, OUT_TAINT), self.external(node)
        state = _state(node, bool(jobs), action is not None or external is not None)
        cause = external or _silence(node) if action is None else _own_mark(node, action)
        in_service = state is ServiceState.IN_SERVICE
        return Machine(
            name=metadata["name"],
            state=state,
            reason="" if in_service else cause.why,
            jobs=jobs,
            gpus=_gpus(node, labels),
            avoided=marked_by(node, AVOID_TAINT) is not None,
            rack=labels.get(self.rack_label),
            switch=labels.get(self.switch_label),
            labels=labels,
            boot=metadata["uid"],
            reason_by=cause.who,
            reason_at=None if in_service else cause.at,
            moves_jobs=moves_jobs,
            problems=reported_problems(node, self.problem_conditions) | _unhealthy_gpus(node),
            unfinished=_unfinished(node, action),
        )

    def external(self, node: Json) -> ExternalMark | None:
        """Return why others have taken a node out of service; None if they have not."""
        return external_mark(node, self.drain_taints)


def _state(node: Json, has_jobs: bool, closed: bool) -> ServiceState:
    ready = ready_status(node)
    if ready in ("False", "Unknown"):
        return ServiceState.DOWN
    if closed:
        return ServiceState.DRAINING if has_jobs else ServiceState.DRAINED
    return ServiceState.IN_SERVICE if ready == "True" else ServiceState.UNKNOWN


def _own_mark(node: Json, action: int) -> ExternalMark:
    change = last_change(node, "taints")
    return ExternalMark(mark_text(node, action), change.who if change else "")


def _silence(node: Json) -> ExternalMark:
    """Return why a node is down; for one in service, who removed the mark that it had."""
    why = {"False": "not ready", "Unknown": "the kubelet does not report"}
    who = "" if condition_action(node) is None else changed_by_others(node)
    return ExternalMark(why.get(ready_status(node), ""), who)


def _unfinished(node: Json, action: int | None) -> int | None:
    """Return the action whose mark is incomplete or partly removed.

    A cordon that is gone is set again, except while the GPU Operator works on the node.
    """
    mark = action if action is not None else marked_by(node, AVOID_TAINT)
    condition = condition_action(node)
    uncordoned = action is not None and not node["spec"].get("unschedulable")
    if mark is None:
        return condition
    return mark if (uncordoned and not is_upgrading(node)) or condition is None else None


def _unhealthy_gpus(node: Json) -> dict[str, str]:
    """Return the kinds of GPUs of which the device plugin reports some as unhealthy.

    If it reports none as healthy, it does not run, which says nothing about GPUs.
    """
    status = node.get("status", {})
    allocatable: Mapping[str, str] = status.get("allocatable") or {}
    counts = {
        name: (int(allocatable[name]), int(capacity))
        for name, capacity in (status.get("capacity") or {}).items()
        if _GPU_RESOURCE.fullmatch(name)
        and all(str(count).isdecimal() for count in (capacity, allocatable.get(name)))
    }
    return {
        f"unhealthy {name}": f"{healthy} of {total} {name} are allocatable"
        for name, (healthy, total) in counts.items()
        if 0 < healthy < total and not is_upgrading(node)
    }


def _gpus(node: Json, labels: Mapping[str, str]) -> int:
    capacity: Mapping[str, str] = node.get("status", {}).get("capacity") or {}
    counted = [
        int(count)
        for name, count in capacity.items()
        if _GPU_RESOURCE.fullmatch(name) and str(count).isdecimal()
    ]
    label = labels.get(_GPU_COUNT, "")
    return max(sum(counted), int(label) if label.isascii() and label.isdecimal() else 0)
