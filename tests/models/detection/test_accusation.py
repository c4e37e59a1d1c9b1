"""Waiting is no accusation, and a machine that waits for another one is not accused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.detection.test_detector import FIXED, RULES, USUAL, Floats, named, task

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.detection.metric_role import Role, guess_role
from forewarn.models.detection.detection_verdict import Verdict
from forewarn.models.detection.detector import Detector, MetricModel

ROLES: dict[str, Role] = {"compute": "work", "waiting": "wait"}
STAGES, REPLICAS = 4, 4
GROUPS = np.repeat(np.arange(STAGES), REPLICAS).tolist()


def detector(order: Sequence[str] = ("compute", "waiting")) -> Detector:
    models = [
        MetricModel((MetricLimits(name, 0.0, 1.0, role=ROLES[name]),), None, USUAL, FIXED)
        for name in order
    ]
    return Detector(RULES, models)


def pipeline(slow: int, size: float, seed: int = 0, *, partners: float = 2.0) -> dict[str, Floats]:
    """Return shares of time in which a slow worker makes its partners wait.

    Groups are stages; the partners have the same place in the other stages, and deviate more.
    """
    generator = np.random.default_rng(seed)
    n = STAGES * REPLICAS
    compute = generator.normal(0.4, 0.01, (n, 300)).astype(np.float32)
    for machine in range(n):
        if machine != slow and machine % REPLICAS == slow % REPLICAS:
            compute[machine, 150:] -= np.float32(partners * size)
    compute[slow, 150:] += np.float32(size)
    return {"compute": compute, "waiting": 0.9 - compute}


def judge(series: dict[str, Floats], order: Sequence[str] = ("compute", "waiting")) -> Verdict:
    verdict, _ = detector(order).find(task(series, GROUPS))
    return verdict


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, STAGES * REPLICAS - 1),
    st.floats(0.1, 0.19),
    st.integers(0, 10**6),
    st.sampled_from([("compute", "waiting"), ("waiting", "compute")]),
)
def test_slow_worker_is_named_and_not_its_partners(
    slow: int, size: float, seed: int, order: tuple[str, str]
) -> None:
    verdict = judge(pipeline(slow, size, seed), order)
    assert named(verdict) == [slow]
    rules = {(each.machine, each.metric): each.rule for each in verdict.suppressed}
    partners = {m for m in range(STAGES * REPLICAS) if m % REPLICAS == slow % REPLICAS} - {slow}
    assert {machine for machine, _ in rules} >= partners
    assert {rules[m, "compute"] for m in partners} == {"victim"}


def test_waiting_alone_is_no_accusation() -> None:
    series = pipeline(5, 0.0)
    series["waiting"][9, 150:] += np.float32(0.3)
    verdict = judge(series)
    assert not verdict.findings
    assert [(each.machine, each.rule) for each in verdict.suppressed] == [(9, "wait")]


def test_machines_that_only_wait_are_an_event() -> None:
    series = pipeline(5, 0.15)
    series["compute"][5] = series["compute"][6]
    series["waiting"][5] = series["waiting"][6]
    verdict = judge(series)
    assert not verdict.findings
    assert verdict.event == (1, 9, 13)


def test_machine_that_works_longer_is_accused_although_it_waits() -> None:
    series = pipeline(5, 0.0)
    series["compute"][5, 150:] += np.float32(0.2)
    series["waiting"][5, 150:] += np.float32(0.1)
    assert named(judge(series)) == [5]


def test_roles_do_not_matter_to_the_paper() -> None:
    paper = replace(detector(), rules=replace(RULES, mode="minder"))
    verdict, _ = paper.find(task(pipeline(5, 0.15), GROUPS))
    assert not verdict.suppressed


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("compute", "work"),
        ("forward_seconds", "work"),
        ("collective", "wait"),
        ("dataloader_wait", "wait"),
        ("gpuIdle", "wait"),
        ("pfc_tx_packet_rate", "traffic"),
        ("nvlink_bandwidth", "traffic"),
        ("gpu_temperature", "temperature"),
        ("gpu_duty_cycle", "other"),
        ("power_draw", "other"),
    ],
)
def test_role_is_guessed_from_words_of_the_name(name: str, role: Role) -> None:
    assert guess_role(name) == role
