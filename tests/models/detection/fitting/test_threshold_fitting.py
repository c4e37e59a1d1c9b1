from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.fitting.threshold_fitting import (
    PeakScore,
    find_suspects,
    fit_joint_threshold,
    peak_scores,
)
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.monitored_task import Task

JOBS = {f"job-{number}": f"job-{number}" for number in range(30)}


def reached(odd: dict[str, PeakScore]) -> dict[str, dict[str, PeakScore]]:
    usual = {job: PeakScore(1.0 + 0.01 * i, 8, 0.01) for i, job in enumerate(JOBS)}
    return {"one": usual | odd}


def test_habitual_deviation_is_no_fault() -> None:
    always = {job: PeakScore(30.0, 8, 0.01, "m3", lasting=True) for job in ("job-4", "job-7")}
    assert find_suspects(reached(always), JOBS, 0.02) == []


@pytest.mark.parametrize("lasting", [True, False])
def test_deviation_in_one_job_is_suspect(lasting: bool) -> None:
    once = {"job-4": PeakScore(30.0, 8, 0.01, "m3", lasting=lasting)}
    (suspect,) = find_suspects(reached(once), JOBS, 0.02)
    assert (suspect.task, suspect.lasting) == ("job-4", lasting)


def test_one_new_deviation_is_not_lasting() -> None:
    both = {
        metric: reached({"job-4": PeakScore(level, 8, 0.01, "m3", lasting=metric == "one")})["one"]
        for metric, level in (("one", 40.0), ("two", 30.0))
    }
    (suspect,) = find_suspects(both, JOBS, 0.02)
    assert (suspect.metric, suspect.lasting) == ("one", False)


def test_changes_in_two_jobs_are_suspects() -> None:
    changed = {job: PeakScore(30.0, 8, 0.01, "m3") for job in ("job-4", "job-7")}
    assert [s.task for s in find_suspects(reached(changed), JOBS, 0.02)] == ["job-4", "job-7"]


@pytest.mark.parametrize(("begin", "lasting"), [(0, True), (150, False)])
def test_peak_score_tells_lasting(begin: int, lasting: bool) -> None:
    values = np.random.default_rng(0).normal(0.5, 0.02, (8, 300)).astype(np.float32)
    values[3, begin:] -= 0.4
    machines = tuple(f"m{i}" for i in range(8))
    task = Task(machines, 0, 300, {"one": values}.get, np.zeros(8, int), np.ones(8))
    model = MetricModel((MetricLimits("one", 0.0, 1.0),), None, HealthySpread(0.02, 0.1, 0.05))
    reach = peak_scores(Detector(DetectionRules(4, 40, 10), ()), [model], task, 0.01)["one"]
    assert (reach.machine, reach.lasting) == ("m3", lasting)


def test_zero_score_is_not_lasting() -> None:
    values = np.full((4, 300), 0.5, dtype=np.float32)
    machines = tuple(f"m{i}" for i in range(4))
    task = Task(machines, 0, 300, {"one": values}.get, np.zeros(4, int), np.ones(4))
    usual = HealthySpread(0.02, 0.1, 0.05, still=1000)
    model = MetricModel((MetricLimits("one", 0.0, 1.0),), None, usual)
    reach = peak_scores(Detector(DetectionRules(4, 40, 10), ()), [model], task, 0.01)["one"]
    assert (reach.highest, reach.lasting) == (0.0, False)


def joint_peaks(n: int, seed: int, odd: float = 0.0, n_odd: int = 0) -> dict[str, PeakScore]:
    highest = np.exp(np.random.default_rng(seed).normal(1.0, 0.1, n))
    highest[:n_odd] = odd
    return {f"job-{i}": PeakScore(float(value), 8, 0.01) for i, value in enumerate(highest)}


@given(st.integers(20, 80), st.floats(2.0, 50.0), st.integers(0, 10**6))
def test_odd_tasks_do_not_raise_joint_threshold(n: int, factor: float, seed: int) -> None:
    usual = fit_joint_threshold(joint_peaks(n, seed), 0.01).at(8)
    odd = joint_peaks(n, seed, odd=factor * usual, n_odd=n // 20)
    assert fit_joint_threshold(odd, 0.01).at(8) == pytest.approx(usual, rel=0.15)


def test_joint_threshold_exceeds_tasks_within_chance() -> None:
    usual = fit_joint_threshold(joint_peaks(30, 1), 0.01).at(8)
    high = joint_peaks(30, 1, odd=0.95 * usual, n_odd=1)
    assert fit_joint_threshold(high, 0.01).at(8) > 0.95 * usual


def test_many_odd_tasks_raise_joint_threshold() -> None:
    odd = joint_peaks(30, 2, odd=40.0, n_odd=3)
    assert fit_joint_threshold(odd, 0.01).at(8) > 40.0
