"""Forms of `forewarn inspect forms` on a real API server: Job, DaemonSet, and node condition."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pipelines.incidents.schedulers.kubernetes.conftest import READING

from forewarn.pipelines.incidents.schedulers.kubernetes.api_server import STRATEGIC
from forewarn.pipelines.inspection.inspection_forms import FORMS

NODE = "node-00004"
FOLDERS = {
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "Job": "/apis/batch/v1/namespaces/team/jobs",
    "DaemonSet": "/apis/apps/v1/namespaces/team/daemonsets",
}
APPLY = "application/apply-patch+yaml"
CONDITION = "ForewarnInspectionFailed"


def manifests(form: str) -> list[dict[str, Any]]:
    text = FORMS[form]
    if form == "kubernetes-job":
        text = text.replace("NODE", NODE)
    return list(yaml.safe_load_all(text))


@pytest.fixture
def apply(kubernetes: Any) -> Iterator[Any]:
    """Return a function that applies a manifest as `kubectl apply --server-side` does."""
    paths: list[str] = []

    def send(manifest: dict[str, Any]) -> dict[str, Any]:
        path = f"{FOLDERS[manifest['kind']]}/{manifest['metadata']['name']}"
        paths.append(path)
        answer: dict[str, Any] = kubernetes.call("PATCH", path, manifest, form=APPLY)
        return answer

    yield send
    for path in set(paths):
        kubernetes.http.delete(path)


@pytest.mark.parametrize("form", ["kubernetes-job", "kubernetes-daemonset"])
def test_manifests_are_accepted_and_applied_again_change_nothing(apply: Any, form: str) -> None:
    first = [apply(manifest) for manifest in manifests(form)]
    again = [apply(manifest) for manifest in manifests(form)]
    for before, after in zip(first, again, strict=True):
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after.get("spec") == before.get("spec")
        assert after.get("value") == before.get("value")  # of a PriorityClass


def test_misspelt_field_is_refused(kubernetes: Any) -> None:
    """Otherwise acceptance by the server would say little."""
    *_, job = manifests("kubernetes-job")
    job["spec"]["template"]["spec"]["container"] = job["spec"]["template"]["spec"].pop("containers")
    path = f"{FOLDERS['Job']}/{job['metadata']['name']}"
    answer = kubernetes.http.patch(
        path, json=job, params={"fieldManager": "x"}, headers={"Content-Type": APPLY}
    )
    assert not answer.is_success


def test_pod_of_the_job_runs_on_its_node_below_all_others(kubernetes: Any, apply: Any) -> None:
    *_, job = [apply(manifest) for manifest in manifests("kubernetes-job")]
    spec = job["spec"]["template"]["spec"]
    body = {"metadata": {"name": "inspection"}, "spec": spec}
    pod = kubernetes.call("POST", "/api/v1/namespaces/team/pods", body)
    kubernetes.run_pod("train", NODE)
    other = kubernetes.call("GET", "/api/v1/namespaces/team/pods/train")
    assert pod["spec"]["priority"] == -1000 < other["spec"]["priority"]
    assert pod["spec"]["preemptionPolicy"] == "Never"
    assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": NODE}
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "8"}


def run_rule(folder: Path, code: int) -> tuple[int, str]:
    """Run the rule of the plug-in as node-problem-detector does, with a stub of forewarn."""
    stub = folder / "forewarn"
    stub.write_text(f'#!/bin/sh\necho "quick: $8"\nexit {code}\n')
    stub.chmod(0o755)
    rule = json.loads(FORMS["node-condition"])["rules"][0]
    environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "NODE_NAME": NODE}
    command = [rule["path"], *rule["args"]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout.strip()


def report(kubernetes: Any, code: int, text: str) -> None:
    """Write the condition as node-problem-detector does: 0 is fine, 1 is a problem."""
    form = json.loads(FORMS["node-condition"])
    default, rule = form["conditions"][0], form["rules"][0]
    item = {
        "type": rule["condition"],
        "status": {0: "False", 1: "True"}.get(code, "Unknown"),
        "reason": rule["reason"] if code else default["reason"],
        "message": text if code else default["message"],
    }
    path = f"/api/v1/nodes/{NODE}/status"
    body = {"status": {"conditions": [item]}}
    kubernetes.call("PATCH", path, body, form=STRATEGIC, who="npd")


@pytest.mark.parametrize(
    ("code", "status"), [(0, "False"), (1, "False"), (2, "True"), (3, "False")]
)
def test_only_a_failed_inspection_sets_the_condition(
    kubernetes: Any, tmp_path: Path, code: int, status: str
) -> None:
    for _ in range(2):  # each hour; the condition is one
        report(kubernetes, *run_rule(tmp_path, code))
    conditions = kubernetes.node(NODE)["status"]["conditions"]
    (condition,) = [item for item in conditions if item["type"] == CONDITION]
    assert condition["status"] == status
    if status == "True":
        assert condition["message"] == f"quick: {NODE}"
    reading = replace(READING, problem_conditions=("Forewarn*",))
    driver = replace(kubernetes.driver, reading=reading)
    machine = next(machine for machine in driver.read().machines if machine.name == NODE)
    assert (CONDITION in machine.problems) == (status == "True")
