"""Resets and reboots by resources of NVSentinel; the tests do what its controllers do.

Nodes and rights are those of a real API server; the resources themselves are held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.pipelines.incidents.schedulers.kubernetes.conftest import (
    Cluster,
    CustomResources,
    rights_of,
)
from tests.pipelines.incidents.schedulers.kubernetes.kubernetes_site import (
    KubernetesSite,
    respond_later,
)

from forewarn.features.time_units import MINUTE
from forewarn.pipelines.incidents.schedulers.driver import DriverError, StepResult
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.step import Step

Drain = Callable[..., Action]
GROUP = "janitor.dgxc.nvidia.com"
KINDS = ("gpuresets", "rebootnodes")
NODE = "node-00001"
STEPS = """
[respond.pools.train.steps]
reset = { scheduler = true }
restart = { scheduler = true }
"""
RIGHTS = [f"{verb} {plural}.{GROUP}" for plural in KINDS for verb in ("get", "create", "delete")]


class Janitor:
    """NVSentinel's controllers."""

    def __init__(self, cluster: Cluster) -> None:
        self.resources = CustomResources(GROUP, set(KINDS), cluster.has_right)

    def of_kind(self, plural: str) -> list[Any]:
        path = f"/apis/{GROUP}/v1alpha1/{plural}/"
        return [item for key, item in self.resources.objects.items() if key.startswith(path)]

    def requests(self, plural: str) -> list[str]:
        """Return the nodes of all resources of a kind."""
        return [item["spec"]["nodeName"] for item in self.of_kind(plural)]

    def end(self, plural: str, kind: str, status: str, reason: str) -> None:
        """End the only request, with a condition that tells how."""
        (item,) = self.of_kind(plural)
        begun = {"type": "SignalSent", "status": "True", "reason": "Succeeded", "message": ""}
        ended = {"type": kind, "status": status, "reason": reason, "message": "by the janitor"}
        item["status"] = {"completionTime": "2026-01-01T00:00:00Z", "conditions": [begun, ended]}


@pytest.fixture
def janitor(kubernetes: Cluster) -> Iterator[Janitor]:
    janitor = Janitor(kubernetes)
    kubernetes.resources = janitor.resources
    yield janitor
    kubernetes.resources = None


@pytest.fixture
def site(janitor: Janitor, site: KubernetesSite) -> KubernetesSite:
    """Return a site whose server knows the resources."""
    site.server.resources = janitor.resources
    return site


@pytest.fixture
def steps_site(site: KubernetesSite) -> KubernetesSite:
    site.configure(respond='check = ["true"]', pool=STEPS)
    return site


def details(site: KubernetesSite) -> list[str]:
    rows = [row.detail for row in site.ledger.action_states(1)]
    return [row for row in rows if row.startswith(("reset", "restart"))]


def begin_reset(site: KubernetesSite) -> None:
    site.report(NODE, "xid 119")
    site.respond()
    site.respond()
    assert details(site) == ["reset begun: by the scheduler"]


def test_missing_controller_is_named(kubernetes: Any, drain: Drain, janitor: Janitor) -> None:
    janitor.resources.kinds.clear()
    action = drain(NODE)
    kubernetes.driver.apply(action, why="ecc")
    with pytest.raises(DriverError, match=r"the cluster has no resource gpuresets\.janitor"):
        kubernetes.driver.carry_out(action, Step.RESET)
    assert kubernetes.driver.step_result(action, Step.RESET, overdue=False) is None


def test_reset_returns_node_to_service(steps_site: KubernetesSite, janitor: Janitor) -> None:
    begin_reset(steps_site)
    steps_site.respond()
    assert janitor.requests("gpuresets") == [NODE]
    janitor.end("gpuresets", "Complete", "True", "GPUResetSucceeded")
    steps_site.respond()
    assert details(steps_site)[1:] == ["reset succeeded: GPUResetSucceeded (by the janitor)"]

    def is_released() -> bool:
        steps_site.respond()
        return steps_site.states() == [ActionState.RELEASED]

    steps_site.cluster.until(is_released, "release")  # the check runs in a process of its own
    assert steps_site.cluster.taints(NODE) == []
    assert janitor.requests("gpuresets") == [NODE]


def test_failed_reset_leads_to_reboot(steps_site: KubernetesSite, janitor: Janitor) -> None:
    begin_reset(steps_site)
    janitor.end("gpuresets", "Complete", "True", "ResetJobFailed")
    steps_site.respond()
    steps_site.respond()
    assert janitor.requests("rebootnodes") == [NODE]
    janitor.end("rebootnodes", "NodeReady", "False", "Timeout")
    for _ in range(3):
        steps_site.respond()
    assert details(steps_site)[1:] == [
        "reset failed: ResetJobFailed (by the janitor)",
        "restart begun: by the scheduler",
        "restart failed: Timeout (by the janitor)",
        f"restart handed over: a person must look at {NODE}: restart had no effect "
        "(Timeout (by the janitor))",
    ]
    assert steps_site.states() == [ActionState.DRAINED]


def test_overdue_reset_is_withdrawn(
    steps_site: KubernetesSite, janitor: Janitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_reset(steps_site)
    respond_later(steps_site, monkeypatch, 9 * MINUTE)
    assert janitor.requests("gpuresets") == [NODE]
    respond_later(steps_site, monkeypatch, 12 * MINUTE)
    respond_later(steps_site, monkeypatch, 13 * MINUTE)
    assert janitor.requests("gpuresets") == []
    assert janitor.requests("rebootnodes") == [NODE]
    assert details(steps_site)[1] == "reset failed: not done in time"


def test_lost_answer_creates_no_second_reset(steps_site: KubernetesSite, janitor: Janitor) -> None:
    steps_site.server.losses[:] = ["POST"]
    begin_reset(steps_site)
    assert "no answer about its reset, will be read back" in steps_site.output.err
    steps_site.respond()
    assert janitor.requests("gpuresets") == [NODE]
    janitor.end("gpuresets", "Complete", "True", "GPUResetSucceeded")
    steps_site.respond()
    assert details(steps_site)[1].startswith("reset succeeded")


def test_request_is_made_once(kubernetes: Any, drain: Drain, janitor: Janitor) -> None:
    action = drain(NODE)
    kubernetes.driver.apply(action, why="ecc")
    for _ in range(2):
        kubernetes.driver.carry_out(action, Step.RESTART)
    assert janitor.requests("rebootnodes") == [NODE]
    assert kubernetes.driver.step_result(action, Step.RESTART, overdue=False) is None
    janitor.end("rebootnodes", "NodeReady", "True", "Succeeded")
    ended = StepResult(True, "Succeeded (by the janitor)")
    assert kubernetes.driver.step_result(action, Step.RESTART, overdue=True) == ended


def test_busy_or_foreign_node_is_left_alone(
    kubernetes: Any, drain: Drain, janitor: Janitor
) -> None:
    with pytest.raises(DriverError, match="is not drained by action 17"):
        kubernetes.driver.carry_out(drain(NODE), Step.RESET)
    kubernetes.run_pod("llama-0", NODE, owner=("PyTorchJob", "llama"))
    kubernetes.driver.apply(drain(NODE), why="ecc")
    with pytest.raises(DriverError, match="or has jobs"):
        kubernetes.driver.carry_out(drain(NODE), Step.RESET)
    assert janitor.requests("gpuresets") == []


@pytest.fixture
def without_right(kubernetes: Any) -> Iterator[Callable[[str], None]]:
    """Return `take_away(right)`."""

    def take_away(right: str) -> None:
        verb, name = right.removesuffix(f".{GROUP}").split()
        rules = [
            {**rule, "resources": [resource], "verbs": [v for v in rule["verbs"] if v != verb]}
            if resource == name
            else {**rule, "resources": [resource]}
            for rule in kubernetes.step_rules
            for resource in rule["resources"]
        ]
        kubernetes.set_rules(rules, right, role="forewarn-steps")

    yield take_away
    kubernetes.set_rules(kubernetes.step_rules, role="forewarn-steps")


def test_step_role_has_these_rights_only(kubernetes: Any) -> None:
    assert sorted(rights_of(kubernetes.step_rules)) == sorted(RIGHTS)


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.usefixtures("janitor")
def test_missing_right_is_named(
    kubernetes: Any, drain: Drain, without_right: Callable[[str], None], right: str
) -> None:
    action, step = drain(NODE), Step.RESET if "gpuresets" in right else Step.RESTART
    kubernetes.driver.apply(action, why="ecc")
    without_right(right)
    with pytest.raises(DriverError, match=f"forewarn lacks the right `{right}`"):  # noqa: PT012
        kubernetes.driver.carry_out(action, step)
        kubernetes.driver.step_result(action, step, overdue=True)
