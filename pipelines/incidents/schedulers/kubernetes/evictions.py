"""Evictions of pods, with back-off where a disruption budget refuses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import (
    ApiServer,
    ConflictError,
    Json,
    ThrottledError,
)

__all__ = ["evict_pods"]

_MAX_LISTED_PODS = 3


def evict_pods(
    server: ApiServer, pods: Iterable[Json], *, delete: bool, waits: Sequence[float]
) -> None:
    """Evict pods; those that a disruption budget protects are tried again after each wait.

    Parameters
    ----------
    server : ApiServer
    pods : iterable of dict
        Pods that are being deleted are skipped.
    delete : bool
        Delete the pods that a budget still protects at the end.
    waits : sequence of float
        Seconds before each further try.

    Raises
    ------
    DriverTimeoutError
        If there was no answer.
    DriverError
        If a budget protects pods until the end, or the server refuses.
    """
    left = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    refusal = ""
    for wait in (0.0, *waits):
        if not left:
            return
        time.sleep(wait)
        protected = []
        for pod in left:
            try:
                server.create(f"{_path(pod)}/eviction", _eviction(pod))
            except ThrottledError as error:
                refusal = str(error)
                protected.append(pod)
            except ConflictError:
                continue  # the pod of this name is another one by now
        left = protected
    if left and not delete:
        raise DriverError(f"a disruption budget keeps {_names(left)} ({refusal})")
    for pod in left:
        server.delete(_path(pod), {"preconditions": {"uid": pod["metadata"]["uid"]}})


def _eviction(pod: Json) -> Json:
    metadata = pod["metadata"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    }


def _path(pod: Json) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _names(pods: Sequence[Json]) -> str:
    names = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods]
    more = len(names) - _MAX_LISTED_PODS
    return ", ".join(names[:_MAX_LISTED_PODS]) + (f" and {more} more pods" if more > 0 else "")
