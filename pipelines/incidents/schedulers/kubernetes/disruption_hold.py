"""Requests to Karpenter and the cluster autoscaler not to remove a node for the moment."""

from __future__ import annotations

from typing import Final

from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import FIELD_MANAGER, Json

__all__ = ["HOLD_LABEL", "hold_patch", "release_patch"]

HOLD_LABEL: Final = "forewarn.io/collecting"
"""Label of the nodes that carry such a request of forewarn."""

_KARPENTER: Final = "karpenter.sh/do-not-disrupt"
_AUTOSCALER: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_REQUESTS: Final = {  # by the label of a node that its remover is responsible for
    "karpenter.sh/nodepool": _KARPENTER,
    "eks.amazonaws.com/nodegroup": _AUTOSCALER,
    "cloud.google.com/gke-nodepool": _AUTOSCALER,
    "kubernetes.azure.com/agentpool": _AUTOSCALER,
}


def hold_patch(node: Json) -> Json:
    """Return the patch that sets the missing requests; empty if none is, or no remover is seen."""
    labels, annotations = (node["metadata"].get(key) or {} for key in ("labels", "annotations"))
    missing = {
        request
        for label, request in _REQUESTS.items()
        if label in labels and request not in annotations
    }
    return _patch(node, dict.fromkeys(missing, "true"), "") if missing else {}


def release_patch(node: Json) -> Json:
    """Return the patch that removes the requests that only forewarn has set."""
    ours = {request: None for request in _REQUESTS.values() if _is_ours(node, request)}
    return _patch(node, ours, None)


def _patch(node: Json, annotations: Json, label: str | None) -> Json:
    return {
        "metadata": {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "labels": {HOLD_LABEL: label},
            "annotations": annotations,
        }
    }


def _is_ours(node: Json, annotation: str) -> bool:
    owners = {
        entry.get("manager")
        for entry in node["metadata"].get("managedFields") or []
        if f"f:{annotation}"
        in entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
    }
    return owners == {FIELD_MANAGER}
