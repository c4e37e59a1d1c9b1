"""Marks of others on a node: cordons, taints, quarantines, driver upgrades, a silent kubelet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import FIELD_MANAGER, Json
from forewarn.pipelines.incidents.schedulers.kubernetes.managed_fields import (
    FieldChange,
    last_change,
)
from forewarn.pipelines.incidents.schedulers.kubernetes.node_marks import (
    AVOID_TAINT,
    OUT_TAINT,
    RISK_CONDITION,
)

__all__ = [
    "ExternalMark",
    "changed_by_others",
    "external_mark",
    "is_upgrading",
    "ready_status",
    "reported_problems",
]

_UPGRADE_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"
_UPGRADE_AT_REST = frozenset({"", "upgrade-done", "upgrade-required"})
# Annotations of NVSentinel. Its dry run sets them, too, without a cordon or taint.
_QUARANTINE: Final = "quarantineHealthEvent"
_QUARANTINE_TAINTS: Final = "quarantineHealthEventAppliedTaints"
_GOOD_ENDINGS = ("Ready", "Healthy")
_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class ExternalMark:
    """Why others have taken a node out of service.

    Attributes
    ----------
    why : str
    who : str
        The manager that set it; empty if unknown.
    at : int or None
        Nanoseconds since 1970 UTC.
    """

    why: str
    who: str = ""
    at: Nanoseconds | None = None


def reported_problems(node: Json, patterns: Sequence[str]) -> dict[str, str]:
    """Return the conditions by which others report a problem, with their text.

    A condition such as `AcceleratedHardwareReady` or `GpuHealthy` is a problem if it is False; all
    others if they are True. The condition of forewarn itself is none.

    Parameters
    ----------
    node : dict
    patterns : sequence of str
        Patterns of types of conditions.
    """
    return {
        str(item["type"]): f"{item.get('reason', '')}: {item.get('message', '')}"
        for item in _conditions(node)
        if item["type"] != RISK_CONDITION
        and any(fnmatchcase(str(item["type"]).casefold(), p.casefold()) for p in patterns)
        and item["status"] == ("False" if item["type"].endswith(_GOOD_ENDINGS) else "True")
    }


def ready_status(node: Json) -> str:
    """Return the status of the condition `Ready`; empty if the kubelet never reported."""
    return next((str(c["status"]) for c in _conditions(node) if c["type"] == "Ready"), "")


def is_upgrading(node: Json) -> bool:
    """Tell whether the GPU Operator is replacing the driver of a node.

    It cordons the node first, and uncordons it last, even if others had cordoned it.
    """
    labels = node["metadata"].get("labels") or {}
    return labels.get(_UPGRADE_STATE, "") not in _UPGRADE_AT_REST


def external_mark(node: Json, drain_taints: Sequence[str]) -> ExternalMark | None:
    """Return why others have taken a node out of service; None if they have not.

    The texts avoid names of hardware: patterns of a site take those for failures.

    Parameters
    ----------
    node : dict
    drain_taints : sequence of str
        Patterns of keys; other taints belong to a node in normal service.
    """
    cordon = last_change(node, "unschedulable") or FieldChange("", None)
    if _is_quarantined(node):
        return ExternalMark("quarantined by NVSentinel", cordon.who, cordon.at)
    for taint in node["spec"].get("taints") or []:
        if _drains(taint, drain_taints):
            change = last_change(node, "taints") or FieldChange("", None)
            words = f"taint {taint['key']}={taint.get('value', '')}:{taint['effect']}"
            return ExternalMark(words, change.who, change.at)
    if node["spec"].get("unschedulable"):
        words = "driver upgrade" if is_upgrading(node) else "cordoned"
        if cordon.who == FIELD_MANAGER:
            words = f"cordoned by {FIELD_MANAGER}, and its taint was removed"
            cordon = FieldChange(changed_by_others(node), None)
        return ExternalMark(words, cordon.who, cordon.at)
    if node["metadata"].get("deletionTimestamp"):
        return ExternalMark("being deleted")
    return None


def changed_by_others(node: Json) -> str:
    """Return who last changed the taints of a node; empty if unknown, or forewarn itself.

    The API forgets who removed the last taint.
    """
    change = last_change(node, "taints")
    return "" if change is None or change.who == FIELD_MANAGER else change.who


def _is_quarantined(node: Json) -> bool:
    annotations = node["metadata"].get("annotations") or {}
    applied = str(annotations.get(_QUARANTINE_TAINTS, ""))
    tainted = any(f'"{taint["key"]}"' in applied for taint in node["spec"].get("taints") or [])
    return _QUARANTINE in annotations and (bool(node["spec"].get("unschedulable")) or tainted)


def _drains(taint: Json, patterns: Sequence[str]) -> bool:
    key, value = taint["key"], str(taint.get("value", ""))
    if taint["effect"] not in _BLOCKING_EFFECTS or key == AVOID_TAINT:
        return False
    if key == OUT_TAINT:  # with a number it is a mark of forewarn
        return not (value.isascii() and value.isdigit())
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _conditions(node: Json) -> list[Json]:
    conditions: list[Json] = node.get("status", {}).get("conditions") or []
    return conditions
