from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.job_kinds import (
    JOB_KINDS,
    Demand,
    compute_load,
    draw_demand,
)
from forewarn.evaluation.simulation.fleet.random_streams import RECORDS_PER_DAY

EVEN = np.ones(len(JOB_KINDS))


def demand(*shape: float) -> Demand:
    return Demand(1, 100, crashes=False, buggy=False, shape=np.array(shape))


def test_single_gpu_jobs_take_one_machine() -> None:
    rng = np.random.default_rng(0)
    alone = [draw_demand(rng, EVEN, whole=False) for _ in range(300)]
    gangs = [draw_demand(rng, EVEN, whole=True) for _ in range(300)]
    assert {d.machines for d in alone} == {1}
    assert {1, 2, 4, 8} <= {d.machines for d in gangs}
    assert np.quantile([d.records for d in gangs], 0.9) > 6 * np.median([d.records for d in gangs])
    assert 0.08 < np.mean([d.crashes for d in alone + gangs]) < 0.22


def test_weights_shift_job_mix() -> None:
    weights = np.array([0.0, 0, 0, 1, 0, 0])  # serving only
    shapes = np.array(
        [draw_demand(np.random.default_rng(i), weights, True).shape for i in range(30)]
    )
    assert (shapes[:, 0] >= 35).all()
    assert (shapes[:, 0] <= 80).all()
    assert (shapes[:, 4] >= 0.4).all()


def test_dips_repeat_once_per_period() -> None:
    job = np.ones((1, RECORDS_PER_DAY), np.int32)
    steady = demand(80, 0.5, 0.25, 4.0, 0, 0, 0.9, 0.4, 0.7)  # a dip of a quarter every four hours
    load = compute_load([steady], job, 0, job > 0)
    assert set(load.utilization[0].tolist()) == {40.0, 80.0}
    assert (load.utilization[0] == 40).mean() == pytest.approx(0.25, abs=0.01)
    falls = (np.diff(load.utilization[0]) < 0).sum()
    assert falls == 5  # the sixth started before the day
    assert load.intensity[0, 0] == pytest.approx(0.9)


def test_serving_follows_time_of_day() -> None:
    job = np.tile(np.array([[1], [0]], np.int32), (1, RECORDS_PER_DAY))
    load = compute_load(
        [demand(60, 0, 0, 24, 0.8, 0, 0.5, 0.5, 0.9)], job, 3, np.ones(job.shape, bool)
    )
    by_day = load.utilization[0]
    assert by_day.max() == pytest.approx(60, abs=0.5)
    assert by_day.min() == pytest.approx(12, abs=0.5)
    assert (load.utilization[1] == 0).all()
    assert not load.busy[1].any()
