"""Tests of marks on generated nodes, without a server."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.kubernetes.external_marks import external_mark
from forewarn.pipelines.incidents.schedulers.kubernetes.node_marks import (
    AVOID_TAINT,
    OUT_TAINT,
    mark_patch,
    marked_by,
    unmark_patch,
)
from forewarn.response.state.action import Action
from forewarn.response.state.step import DrainMode, Step

TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["sku", "acme.io/quarantine", "nvidia.com/gpu"]),
            "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
        },
        optional={"value": st.text("abc17", max_size=3)},
    ),
    max_size=4,
)


def action(number: int, step: Step) -> Action:
    moment = Nanoseconds(0)
    names = ("a", "train", None, None, "at_risk")
    return Action(number, 1, *names, step, DrainMode.FINISH, moment, moment, moment)


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch as the API does (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


@given(
    taints=TAINTS,
    cordoned_by=st.sampled_from([None, "tom", "forewarn"]),
    steps=st.lists(st.sampled_from([Step.AVOID, Step.DRAIN, Step.RESET]), min_size=1, max_size=3),
    annotations=st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3)),
)
def test_undo_restores_what_others_have_set(
    taints: list[Any], cordoned_by: str | None, steps: list[Step], annotations: dict[str, str]
) -> None:
    node: Any = {
        "metadata": {"name": "a", "resourceVersion": "1", "annotations": annotations},
        "spec": {"taints": taints},
    }
    for number, step in enumerate(steps, 1):
        node = merge(node, mark_patch(node, action(number, step), "ecc"))
        key = AVOID_TAINT if step is Step.AVOID else OUT_TAINT
        assert marked_by(node, key) == number
    if cordoned_by is not None:
        node["spec"]["unschedulable"] = True
    fields: Any = {"f:spec": {"f:unschedulable": {}}}
    owner = cordoned_by or "forewarn"
    node["metadata"]["managedFields"] = [{"manager": owner, "fieldsV1": fields}]
    for number, step in enumerate(steps, 1):
        node = merge(node, unmark_patch(node, action(number, step)))
    assert node["spec"]["taints"] == taints
    assert bool(node["spec"].get("unschedulable")) == (
        cordoned_by == "tom" or (cordoned_by == "forewarn" and set(steps) == {Step.AVOID})
    )
    assert node["metadata"]["annotations"] == annotations


@given(TAINTS)
def test_external_taint_matches_configured_keys(taints: list[Any]) -> None:
    node: Any = {"metadata": {}, "spec": {"taints": taints}}
    closing = {"NoSchedule", "NoExecute"}
    expected = [t for t in taints if "quarantine" in t["key"] and t["effect"] in closing]
    assert (external_mark(node, ("*quarantine*",)) is not None) == bool(expected)
