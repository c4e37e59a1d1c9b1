"""Notices to jobs: events of their pods for people, an annotation for the job itself."""

from __future__ import annotations

import json
from typing import Final

from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import FIELD_MANAGER, Json

__all__ = ["NOTICE_ANNOTATION", "anti_affinity", "notice_event"]

NOTICE_ANNOTATION: Final = "forewarn.io/notice"
"""Annotation of pods; the downward API mounts it as a file."""

_MAX_MESSAGE_LENGTH = 1000  # characters; the API permits 1024 bytes


def notice_event(pod: Json, message: str, at: str) -> Json:
    """Return an event that `kubectl describe pod` shows.

    Parameters
    ----------
    pod : dict
    message : str
    at : str
        ISO 8601, whole seconds.
    """
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "forewarn-", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            **{name: metadata[name] for name in ("name", "namespace", "uid")},
        },
        "reason": "MachineAtRisk",
        "message": message[:_MAX_MESSAGE_LENGTH],
        "type": "Warning",
        "source": {"component": FIELD_MANAGER},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def anti_affinity(machine: str) -> str:
    """Return the affinity, as JSON, that keeps the pods of a job off a node."""
    term = {"key": "metadata.name", "operator": "NotIn", "values": [machine]}
    rule = {"nodeSelectorTerms": [{"matchFields": [term]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}
    return json.dumps({"affinity": affinity})
