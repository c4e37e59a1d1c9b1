from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.simulation.fleet.random_streams import (
    Purpose,
    ar1_step,
    draw_lognormal,
    random_stream,
)


def test_streams_differ_by_purpose_and_day() -> None:
    drawn = {
        float(random_stream(seed, purpose, day).random())
        for seed in (0, 1)
        for purpose in Purpose
        for day in (-45, -1, 0, 1)
    }
    assert len(drawn) == 2 * len(Purpose) * 4


def test_stream_is_independent_of_earlier_draws() -> None:
    first = random_stream(3, Purpose.JOBS, 2)
    first.random(100)
    assert (
        random_stream(3, Purpose.JOBS, 2).random() == np.random.default_rng((3, 8, 1002)).random()
    )


def test_lognormal_has_median_and_spread() -> None:
    rng = np.random.default_rng(0)
    logs = np.log([draw_lognormal(rng, 0.85, 2.0) for _ in range(4000)])
    assert np.exp(np.median(logs)) == pytest.approx(0.85, rel=0.12)
    assert logs.std() == pytest.approx(2.0, rel=0.05)


def test_ar1_has_stationary_spread_and_memory() -> None:
    rng = np.random.default_rng(0)
    start = np.full(20_000, 3.0, np.float32)
    walk = start
    for _ in range(5):
        walk = ar1_step(rng, walk, spread=1.0, memory_days=5.0)
    assert walk.mean() == pytest.approx(3 / np.e, rel=0.05)
    for _ in range(40):
        walk = ar1_step(rng, walk, spread=1.0, memory_days=5.0)
    assert walk.mean() == pytest.approx(0, abs=0.03)
    assert walk.std() == pytest.approx(1, rel=0.03)
