"""Checkpoint advice against closed forms and against a direct search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.response.recovery.checkpoint_advice import (
    advise_checkpoint,
    best_interval_seconds,
    failure_rate,
    lost_share,
)


def _simulated_loss(interval: float, save: float, mean: float, seed: int) -> float:
    """Return the share of time lost by a job whose interruptions are random, without restart."""
    random = np.random.default_rng(seed)
    gaps = random.exponential(mean, 200_000)
    periods = np.floor(gaps / (interval + save))
    return 1 - float((periods * interval).sum() / gaps.sum())


@pytest.mark.parametrize("save", [10.0, 100.0, 1_000.0])
def test_the_interval_loses_hardly_more_than_the_best(save: float) -> None:
    mean = 10_000.0
    best = best_interval_seconds(save, 1 / mean)
    grid = best * np.geomspace(0.3, 3, 41)
    losses = [_simulated_loss(interval, save, mean, seed=1) for interval in grid]
    assert _simulated_loss(best, save, mean, seed=1) <= min(losses) * 1.02


@given(st.floats(1, 600), st.floats(1e-7, 1e-4), st.floats(0.5, 60))
def test_a_third_and_three_times_cost_more(save: float, rate: float, step: float) -> None:
    advice = advise_checkpoint(step_seconds=step, save_seconds=save, restart_seconds=300, rate=rate)
    assert advice.interval_steps is not None
    if advice.interval_steps >= 20 and save * rate < 0.01:
        assert advice.lost_share < advice.lost_share_third
        assert advice.lost_share < advice.lost_share_triple


def test_a_job_that_nothing_interrupts_need_not_save() -> None:
    advice = advise_checkpoint(step_seconds=1, save_seconds=30, restart_seconds=60, rate=0.0)
    assert advice.interval_steps is None
    assert (advice.lost_share, advice.chance_of_interruption) == (0.0, 0.0)


def test_the_loss_of_a_renewal_process() -> None:
    """First order: C / T + rate (T / 2 + R), within 3 % where both are small."""
    save, mean, restart = 20.0, 86_400.0, 300.0
    interval = best_interval_seconds(save, 1 / mean)
    random = np.random.default_rng(2)
    gaps = random.exponential(mean, 400_000)
    useful = np.floor(gaps / (interval + save)) * interval
    lost = 1 - useful.sum() / (gaps + restart).sum()
    assert lost_share(interval, save, 1 / mean, restart) == pytest.approx(lost, rel=0.03)


def test_daly_counts_where_saving_is_dear() -> None:
    mean, save = 1_000.0, 400.0
    assert best_interval_seconds(save, 1 / mean) < math.sqrt(2 * save * mean)
    assert best_interval_seconds(3_000.0, 1 / mean) == mean


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: best_interval_seconds(0, 1), "save_seconds"),
        (lambda: best_interval_seconds(1, -1), "rate"),
        (lambda: failure_rate([1.0], 60), "probability"),
        (lambda: failure_rate([math.nan], 60), "probability"),
        (lambda: failure_rate([0.1], 0), "horizon_seconds"),
    ],
)
def test_values_out_of_range_are_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
