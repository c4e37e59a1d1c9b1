"""Tests of the shipped role: each right taken away in turn, with a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.pipelines.incidents.schedulers.kubernetes.conftest import rights_of

from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.response.state.action import Action
from forewarn.response.state.step import DrainMode

Drain = Callable[..., Action]
JOBS = ("team/PyTorchJob/llama",)
RIGHTS = [
    *(
        "get namespaces",
        "get nodes",
        "list nodes",
        "list pods",
        "patch nodes",
        "patch nodes/status",
    ),
    *("create pods/eviction", "create events", "delete pods", "patch pods"),
]


@pytest.fixture
def cluster_without(kubernetes: Any) -> Iterator[Callable[[str], None]]:
    """Return `take_away(right)`."""

    def take_away(right: str) -> None:
        verb, resource = right.split()
        rules = [
            {
                **rule,
                "verbs": [v for v in rule["verbs"] if rule["resources"] != [resource] or v != verb],
            }
            for rule in kubernetes.rules
        ]
        kubernetes.set_rules([rule for rule in rules if rule["verbs"]], right)

    yield take_away
    kubernetes.set_rules(kubernetes.rules)


def test_role_has_these_rights_only(kubernetes: Any) -> None:
    assert sorted(rights_of(kubernetes.rules)) == sorted(RIGHTS)


@pytest.mark.parametrize("right", RIGHTS)
def test_missing_right_is_named(
    kubernetes: Any, drain: Drain, cluster_without: Callable[[str], None], right: str
) -> None:
    kubernetes.run_pod("llama-0", "node-00001", owner=("PyTorchJob", "llama"))
    kubernetes.protect("llama-0", 0)
    action = drain("node-00001", mode=DrainMode.NOW)
    calls: list[Callable[[], Any]] = [
        kubernetes.driver.read,
        lambda: kubernetes.driver.apply(action, why="ecc"),
        lambda: kubernetes.driver.notify(JOBS, "node-00001 leaves"),
        lambda: kubernetes.driver.publish({JOBS[0]: "{}"}),
        lambda: kubernetes.driver.evict(action, JOBS),
        lambda: kubernetes.driver.undo(action),
    ]
    cluster_without(right)
    refusals = []
    for call in calls:
        try:
            call()
        except DriverError as error:
            refusals.append(str(error))
    assert refusals
    # Without a mark nothing else is refused for want of it.
    named = [text for text in refusals if text.startswith(f"forewarn lacks the right `{right}`")]
    others = [text for text in refusals if text not in named]
    assert named
    assert all("is not drained by action 17" in text for text in others)
    if right in ("get nodes", "patch nodes", "patch nodes/status"):
        assert kubernetes.taints("node-00001") == []
        assert not kubernetes.cordoned("node-00001")
