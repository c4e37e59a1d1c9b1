"""Small changes on several metrics together name a machine that no single metric names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.detection.test_detector import RULES, USUAL, Floats, named

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.joint_score import JOINT
from forewarn.models.detection.monitored_task import Task
from forewarn.models.detection.threshold import Threshold

NAMES = ("a", "b", "c", "d", "e")
HIGH = Threshold(base=float(np.log(6.0)), slope=0.0, margin=0.0, tail=0.2)
JOINT_LEVEL = Threshold(base=float(np.log(2.0)), slope=0.0, margin=0.0, tail=0.2)


def detector(*, names_joint: bool = True) -> Detector:
    models = [MetricModel((MetricLimits(name, 0.0, 1.0),), None, USUAL, HIGH) for name in NAMES]
    return Detector(RULES, models, joint=JOINT_LEVEL, joint_names=names_joint)


def series(seed: int = 0, n: int = 6, ticks: int = 300) -> dict[str, Floats]:
    generator = np.random.default_rng(seed)
    return {name: generator.normal(0.5, 0.01, (n, ticks)).astype(np.float32) for name in NAMES}


def task(samples: dict[str, Floats]) -> Task:
    n, ticks = samples["a"].shape
    machines = tuple(f"m{i}" for i in range(n))
    return Task(machines, 0, ticks, samples.get, np.zeros(n, int), np.ones(n))


def shifted(sizes: dict[str, float], until: int = 300) -> dict[str, Floats]:
    samples = series()
    for name, size in sizes.items():
        samples[name][2, 150:until] += np.float32(size)
    return samples


def test_small_changes_together_name_a_machine() -> None:
    samples = shifted(dict.fromkeys(NAMES, 0.08))
    alone = replace(detector(), joint=None)
    assert named(alone.find(task(samples))[0]) == []
    (finding,) = detector().find(task(samples))[0].findings
    assert (finding.machine, finding.metric) == (2, JOINT)
    assert {name for name, _ in finding.metrics} <= set(NAMES)
    assert abs(finding.since - 150) <= RULES.block


def test_contributing_metrics_are_listed_by_share() -> None:
    samples = shifted({"a": 0.1, "c": 0.1, "d": 0.02})
    (finding,) = detector().find(task(samples))[0].findings
    assert [name for name, _ in finding.metrics] in (["a", "c"], ["c", "a"])
    assert sum(share for _, share in finding.metrics) == pytest.approx(1.0, abs=0.1)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_healthy_task_has_no_joint_finding(seed: int) -> None:
    verdict, _ = detector().find(task(series(seed)))
    assert not verdict.findings
    assert not verdict.suppressed


def test_change_of_one_metric_is_not_joint() -> None:
    verdict, _ = detector().find(task(shifted({"a": 0.12})))
    assert not verdict.findings


def test_short_change_is_no_finding() -> None:
    samples = shifted(dict.fromkeys(NAMES, 0.08), until=150 + RULES.continuity - RULES.block)
    assert named(detector().find(task(samples))[0]) == []


def test_joint_score_of_few_tasks_is_only_listed() -> None:
    samples = shifted(dict.fromkeys(NAMES, 0.08))
    verdict, _ = detector(names_joint=False).find(task(samples))
    assert not verdict.findings
    assert [(each.machine, each.rule) for each in verdict.suppressed] == [(2, "few_tasks")]


def test_offset_since_the_first_sample_is_no_change() -> None:
    samples = series()
    for name in NAMES:
        samples[name][2] += np.float32(0.08)
    assert named(detector().find(task(samples))[0]) == []


def test_stream_of_calls_finds_the_same_machine() -> None:
    samples, baselines = shifted(dict.fromkeys(NAMES, 0.08)), None
    verdicts = []
    for end in range(150, 301, 10):
        last = {name: values[:, max(end - 150, 0) : end] for name, values in samples.items()}
        first = replace(task(last), first_tick=max(end - 150, 0))
        verdict, baselines = detector().find(first, baselines, incremental=True)
        verdicts.append(named(verdict))
    assert verdicts[-1] == [2]
    assert verdicts[:4] == [[], [], [], []]
