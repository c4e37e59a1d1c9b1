from __future__ import annotations

import numpy as np
import pytest

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.fitting.threshold_fitting import PeakScore, find_suspects, peak_score
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.monitored_task import Task

JOBS = {f"job-{number}": f"job-{number}" for number in range(30)}


def reached(odd: dict[str, PeakScore]) -> dict[str, dict[str, PeakScore]]:
    usual = {job: PeakScore(1.0 + 0.01 * i, 8, 0.01) for i, job in enumerate(JOBS)}
    return {"one": usual | odd}


def test_what_machines_of_two_jobs_have_always_differed_by_is_no_fault() -> None:
    always = {job: PeakScore(30.0, 8, 0.01, "m3", lasting=True) for job in ("job-4", "job-7")}
    assert find_suspects(reached(always), JOBS, 0.02) == []


@pytest.mark.parametrize("lasting", [True, False])
def test_what_only_a_machine_of_one_job_differs_by_may_be_its_fault(lasting: bool) -> None:
    once = {"job-4": PeakScore(30.0, 8, 0.01, "m3", lasting=lasting)}
    (suspect,) = find_suspects(reached(once), JOBS, 0.02)
    assert (suspect.task, suspect.lasting) == ("job-4", lasting)


def test_what_lasts_on_one_metric_and_has_begun_on_another_has_begun() -> None:
    both = {
        metric: reached({"job-4": PeakScore(level, 8, 0.01, "m3", lasting=metric == "one")})["one"]
        for metric, level in (("one", 40.0), ("two", 30.0))
    }
    (suspect,) = find_suspects(both, JOBS, 0.02)
    assert (suspect.metric, suspect.lasting) == ("one", False)


def test_what_changed_in_two_jobs_may_be_two_faults() -> None:
    changed = {job: PeakScore(30.0, 8, 0.01, "m3") for job in ("job-4", "job-7")}
    assert [s.task for s in find_suspects(reached(changed), JOBS, 0.02)] == ["job-4", "job-7"]


@pytest.mark.parametrize(("begin", "lasting"), [(0, True), (150, False)])
def test_a_task_tells_since_when_it_stands_out(begin: int, lasting: bool) -> None:
    values = np.random.default_rng(0).normal(0.5, 0.02, (8, 300)).astype(np.float32)
    values[3, begin:] -= 0.4
    machines = tuple(f"m{i}" for i in range(8))
    task = Task(machines, 0, 300, {"one": values}.get, np.zeros(8, int), np.ones(8))
    model = MetricModel((MetricLimits("one", 0.0, 1.0),), None, HealthySpread(0.02, 0.1, 0.05))
    reach = peak_score(Detector(DetectionRules(4, 40, 10), ()), model, task, 0.01)
    assert reach is not None
    assert (reach.machine, reach.lasting) == ("m3", lasting)


def test_where_nothing_differs_nothing_is_lasting() -> None:
    values = np.full((4, 300), 0.5, dtype=np.float32)
    machines = tuple(f"m{i}" for i in range(4))
    task = Task(machines, 0, 300, {"one": values}.get, np.zeros(4, int), np.ones(4))
    usual = HealthySpread(0.02, 0.1, 0.05, still=1000)
    model = MetricModel((MetricLimits("one", 0.0, 1.0),), None, usual)
    reach = peak_score(Detector(DetectionRules(4, 40, 10), ()), model, task, 0.01)
    assert reach is not None
    assert (reach.highest, reach.lasting) == (0.0, False)
