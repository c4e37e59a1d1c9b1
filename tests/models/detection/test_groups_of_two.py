"""Machines in groups of two are compared with the same position in the other groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.detection.test_detector import FIXED, RULES, USUAL, Floats, named, task

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.fitting.spread_fitting import measure_task_spread
from forewarn.models.detection.monitored_task import Task
from forewarn.models.detection.threshold import Threshold

LEVELS = st.lists(st.floats(0.1, 0.5), min_size=3, max_size=8)


def detector(names: Sequence[str] = ("one",)) -> Detector:
    models = [MetricModel((MetricLimits(name, 0.0, 1.0),), None, USUAL, FIXED) for name in names]
    return Detector(RULES, models)


def pairs(levels: Sequence[float], shifts: dict[int, float], seed: int = 0) -> Floats:
    """Return machines in groups of two, each group with its own level; some change at tick 150."""
    noise = np.random.default_rng(seed).normal(0.0, 0.01, (2 * len(levels), 300))
    values = np.repeat(levels, 2)[:, None] + noise
    for machine, shift in shifts.items():
        values[machine, 150:] += shift
    return values.astype(np.float32)


def pair_task(values: Floats, first: int = 0) -> Task:
    groups = np.repeat(np.arange(len(values) // 2), 2).tolist()
    return task({"one": values}, groups, first=first)


@settings(max_examples=40, deadline=None)
@given(LEVELS, st.data(), st.sampled_from([-0.3, -0.2, 0.2, 0.3]), st.integers(0, 10**6))
def test_changed_machine_of_a_pair_is_named(
    levels: list[float], data: st.DataObject, shift: float, seed: int
) -> None:
    machine = data.draw(st.integers(0, 2 * len(levels) - 1))
    verdict, _ = detector().find(pair_task(pairs(levels, {machine: shift}, seed)))
    assert named(verdict) == [machine]
    assert verdict.too_small == ()


@settings(max_examples=25, deadline=None)
@given(LEVELS, st.integers(0, 10**6))
def test_level_of_a_group_is_no_fault(levels: list[float], seed: int) -> None:
    verdict, _ = detector().find(pair_task(pairs(levels, {}, seed)))
    assert not verdict.findings
    assert not verdict.jitters


@settings(max_examples=25, deadline=None)
@given(LEVELS, st.data(), st.sampled_from([-0.25, 0.25]), st.floats(0.3, 1.0))
def test_group_that_changed_has_no_culprit(
    levels: list[float], data: st.DataObject, shift: float, less: float
) -> None:
    group = data.draw(st.integers(0, len(levels) - 1))
    values = pairs(levels, {2 * group: shift, 2 * group + 1: (1.6 - less) * shift})
    verdict, _ = detector().find(pair_task(values))
    assert not verdict.findings
    assert {each.rule for each in verdict.suppressed} <= {"majority"}


def test_machine_that_always_differs_from_its_partner_is_not_named() -> None:
    values = pairs([0.1, 0.3, 0.6, 0.2], {})
    values[3] += np.float32(0.4)
    assert named(detector().find(pair_task(values))[0]) == []


def test_short_call_has_no_finding() -> None:
    values = pairs([0.1, 0.5, 0.9], {})[:, : RULES.continuity + RULES.window]
    assert named(detector().find(pair_task(values))[0]) == []


def test_stream_names_changed_machine_of_a_pair() -> None:
    values, baselines, verdicts = pairs([0.1, 0.3, 0.6, 0.2], {3: 0.25}), None, []
    for end in range(100, 301, 20):
        first = max(end - 150, 0)
        call = pair_task(values[:, first:end], first)
        verdict, baselines = detector().find(call, baselines, incremental=True)
        verdicts.append(named(verdict))
    assert verdicts[-1] == [3]
    assert all(names in ([], [3]) for names in verdicts)


def test_joint_change_of_both_has_no_culprit() -> None:
    names = ("one", "two", "three", "four")
    groups = [0, 0, 1, 1, 2, 2, 3, 3]
    level = Threshold(base=float(np.log(2.0)), slope=0.0, margin=0.0, tail=0.2)
    joint = replace(detector(names), joint=level, joint_names=True)

    def judge(shifts: dict[int, float]) -> list[int]:
        series = {name: pairs([0.2, 0.5, 0.3, 0.4], shifts, i) for i, name in enumerate(names)}
        return named(joint.find(task(series, groups))[0])

    assert judge({4: 0.09}) == [4]
    assert judge({4: 0.09, 5: 0.09}) == []


def test_level_of_a_group_is_no_tolerated_offset() -> None:
    """What groups of two differ by in training tasks does not widen the tolerance of machines."""
    training, model = pair_task(pairs([0.1, 0.5, 0.9], {})), detector().metrics[0]
    spread = measure_task_spread(detector(), model, training)
    assert spread is not None
    assert np.abs(spread.offset).max() < 0.05
