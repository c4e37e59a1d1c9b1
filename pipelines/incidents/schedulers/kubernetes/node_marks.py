"""Marks of forewarn on a node: two taints, the cordon, an annotation and a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import FIELD_MANAGER, Json
from forewarn.pipelines.incidents.schedulers.kubernetes.managed_fields import last_change
from forewarn.response.state.action import Action
from forewarn.response.state.machine import MARK_PREFIX, Machine, ServiceState
from forewarn.response.state.step import Step

__all__ = [
    "AVOID_TAINT",
    "OUT_TAINT",
    "RISK_CONDITION",
    "condition_action",
    "condition_patch",
    "mark_patch",
    "mark_text",
    "marked_by",
    "reason_text",
    "unmark_patch",
]

OUT_TAINT: Final = "forewarn.io/out"
"""Key of the taint that takes a node out of service; its value is the number of the action."""

AVOID_TAINT: Final = "forewarn.io/avoid"
"""Key of the taint by which the scheduler prefers other nodes."""

RISK_CONDITION: Final = "GPUAtRisk"

_REASON = "forewarn.io/reason"  # annotation
_EFFECTS = {OUT_TAINT: "NoSchedule", AVOID_TAINT: "PreferNoSchedule"}
_MAX_TEXT_LENGTH = 160  # characters of a reason


def marked_by(node: Json, key: str) -> int | None:
    """Return the number of the action whose taint a node carries."""
    for taint in _taints(node):
        value = str(taint.get("value", ""))
        if taint.get("key") == key and value.isascii() and value.isdigit():
            return int(value)
    return None


def mark_text(node: Json, action: int) -> str:
    """Return the reason of an action as the annotation states it, with the mark of the action."""
    text = str(node["metadata"].get("annotations", {}).get(_REASON, ""))
    mark = f"{MARK_PREFIX}{action}"
    return text if _action(text) == action else mark


def mark_patch(node: Json, action: Action, why: str) -> Json:
    """Return the patch that marks a node: taint, cordon and annotation; empty if it has them.

    The patch names the version of the node that was read, so it replaces no change by others.
    """
    key = AVOID_TAINT if action.step is Step.AVOID else OUT_TAINT
    cordoned = bool(node["spec"].get("unschedulable"))
    if marked_by(node, key) == action.id and (key == AVOID_TAINT or cordoned):
        return {}
    taint = {"key": key, "value": str(action.id), "effect": _EFFECTS[key]}
    spec: Json = {"taints": [*_other_taints(node, key), taint]}
    if key == OUT_TAINT:
        spec["unschedulable"] = True
    return {
        "metadata": {**_version(node), "annotations": {_REASON: reason_text(action, why)}},
        "spec": spec,
    }


def unmark_patch(node: Json, action: Action) -> Json:
    """Return the patch that removes the mark of an action; empty if the node does not carry it.

    A cordon that others have set, before or after the drain, is kept.
    """
    key = AVOID_TAINT if action.step is Step.AVOID else OUT_TAINT
    if marked_by(node, key) != action.id:
        return {}
    spec: Json = {"taints": _other_taints(node, key)}
    cordoned_by = last_change(node, "unschedulable")
    if key == OUT_TAINT and cordoned_by is not None and cordoned_by.who == FIELD_MANAGER:
        spec["unschedulable"] = None
    metadata: Json = _version(node)
    if _action(str(node["metadata"].get("annotations", {}).get(_REASON, ""))) == action.id:
        metadata["annotations"] = {_REASON: None}
    return {"metadata": metadata, "spec": spec}


def condition_action(node: Json) -> int | None:
    """Return the number of the action that the condition `GPUAtRisk` names; None if not True."""
    for condition in node.get("status", {}).get("conditions", []):
        if condition.get("type") == RISK_CONDITION and condition.get("status") == "True":
            return _action(str(condition.get("message", "")))
    return None


def condition_patch(action: Action, why: str | None, at: str) -> Json:
    """Return the patch that sets the condition `GPUAtRisk`; to False if there is no reason."""
    condition = {
        "type": RISK_CONDITION,
        "status": "False" if why is None else "True",
        "reason": "ReturnedToService" if why is None else "ForewarnAction",
        "message": f"action {action.id} has ended" if why is None else reason_text(action, why),
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }
    return {"status": {"conditions": [condition]}}


def reason_text(action: Action, why: str) -> str:
    """Return why a node or device is marked, with the mark of the action."""
    return f"{MARK_PREFIX}{action.id} {' '.join(why.split())[:_MAX_TEXT_LENGTH]}".rstrip()


def _action(text: str) -> int | None:
    return Machine("", ServiceState.DRAINED, text).action


def _version(node: Json) -> Json:
    return {"resourceVersion": node["metadata"]["resourceVersion"]}


def _taints(node: Json) -> list[Mapping[str, Any]]:
    return node["spec"].get("taints") or []


def _other_taints(node: Json, key: str) -> list[Mapping[str, Any]]:
    return [taint for taint in _taints(node) if taint.get("key") != key]
