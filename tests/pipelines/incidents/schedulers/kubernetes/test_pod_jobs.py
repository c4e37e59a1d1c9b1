"""Tests of the jobs of pods, as controllers create them."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.pipelines.incidents.schedulers.kubernetes.pod_jobs import job_of_pod, jobs_by_node


def pod(owner: tuple[str, str] | None = None, phase: str = "Running") -> Any:
    references = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    return {
        "metadata": {
            "name": "pod-0",
            "namespace": "team",
            "ownerReferences": [{"kind": "Quota", "name": "q"}, *references],
        },
        "spec": {"nodeName": "a"},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod(), "team/Pod/pod-0"),
        (pod(("Job", "train")), "team/Job/train"),
        (pod(("PyTorchJob", "llama")), "team/PyTorchJob/llama"),
        (pod(("DaemonSet", "dcgm")), None),
        (pod(("Node", "a")), None),
        (pod(("Job", "train"), phase="Succeeded"), None),
    ],
)
def test_job_is_the_controller(given: Any, expected: str | None) -> None:
    assert job_of_pod(given, ()) == expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("jobset.sigs.k8s.io/jobset-name", "team/JobSet/llama"),
        ("ray.io/cluster", "team/RayCluster/llama"),
        ("leaderworkerset.sigs.k8s.io/name", "team/LeaderWorkerSet/llama"),
        ("kueue.x-k8s.io/pod-group-name", "team/PodGroup/llama"),
    ],
)
def test_gang_label_names_the_job(label: str, expected: str) -> None:
    given = pod(("Job", "llama-workers-0"))
    given["metadata"]["labels"] = {label: "llama"}
    assert job_of_pod(given, ()) == expected


def test_gang_on_a_node_is_one_job() -> None:
    pods = [pod(("PyTorchJob", "llama")), pod(("PyTorchJob", "llama")), pod(("Job", "b"))]
    system = pod(("ReplicaSet", "dns"))
    system["metadata"]["namespace"] = "kube-system"
    assert jobs_by_node([*pods, system], ("kube-*",)) == {
        "a": ("team/Job/b", "team/PyTorchJob/llama")
    }
