"""Jobs of pods, from owner references and the labels of controllers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import Json

__all__ = ["is_moved_by_kueue", "job_of_pod", "jobs_by_node"]

# Controllers whose pods are owned by something below them, by the label that names them. One
# evicted pod ends the whole gang.
_GANG_LABELS: Final[Mapping[str, str]] = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "ray.io/originated-from-cr-name": "RayJob",
    "ray.io/cluster": "RayCluster",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
    "volcano.sh/job-name": "VolcanoJob",
    "kueue.x-k8s.io/pod-group-name": "PodGroup",
}
_ENDED = frozenset({"Succeeded", "Failed"})
_NO_JOB = frozenset({"DaemonSet", "Node"})  # `Node` owns static pods


def job_of_pod(pod: Json, system_namespaces: Sequence[str]) -> str | None:
    """Return the job of a pod as `NAMESPACE/KIND/NAME`; None for a pod that belongs to no job.

    Pods of system namespaces and of DaemonSets, static pods and ended pods belong to no job.

    Parameters
    ----------
    pod : dict
    system_namespaces : sequence of str
        Patterns of file names.
    """
    metadata = pod["metadata"]
    namespace = str(metadata["namespace"])
    owner = next((o for o in metadata.get("ownerReferences") or [] if o.get("controller")), None)
    if (
        pod.get("status", {}).get("phase") in _ENDED
        or any(fnmatchcase(namespace, pattern) for pattern in system_namespaces)
        or (owner is not None and owner["kind"] in _NO_JOB)
    ):
        return None
    labels = metadata.get("labels") or {}
    for label, kind in _GANG_LABELS.items():
        if labels.get(label):
            return f"{namespace}/{kind}/{labels[label]}"
    if owner is None:
        return f"{namespace}/Pod/{metadata['name']}"
    return f"{namespace}/{owner['kind']}/{owner['name']}"


def is_moved_by_kueue(pod: Json) -> bool:
    """Tell whether Kueue placed a pod by topology: it moves its job off a node with a taint."""
    return "kueue.x-k8s.io/tas" in (pod["metadata"].get("labels") or {})


def jobs_by_node(
    pods: Iterable[Json], system_namespaces: Sequence[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the jobs of each node that has any, sorted."""
    jobs: dict[str, set[str]] = defaultdict(set)
    for pod in pods:
        job, node = job_of_pod(pod, system_namespaces), pod["spec"].get("nodeName")
        if job is not None and node:
            jobs[node].add(job)
    return {node: tuple(sorted(names)) for node, names in jobs.items()}
