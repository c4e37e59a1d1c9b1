from __future__ import annotations

import numpy as np

from forewarn.features.detection.frozen_sensors import find_frozen


def moving(n: int = 6, ticks: int = 50) -> np.ndarray:
    return np.random.default_rng(0).random((n, ticks)).astype(np.float32)


def test_long_constant_run_is_frozen() -> None:
    series = moving()
    series[2, 20:] = series[2, 20]
    found = find_frozen(series, 25)
    assert found[2, 20:].all()
    assert not found[2, :20].any()
    assert not np.delete(found, 2, axis=0).any()


def test_short_constant_run_is_kept() -> None:
    series = moving()
    series[2, 20:44] = series[2, 20]
    assert not find_frozen(series, 25).any()


def test_constant_at_limit_is_not_frozen() -> None:
    series = moving()
    series[2, 20:] = 0.0
    series[3, 20:] = 1.0
    assert not find_frozen(series, 25).any()


def test_always_constant_at_limit_is_frozen() -> None:
    series = moving()
    series[2] = 0.0
    assert find_frozen(series, 25)[2].all()


def test_metric_constant_everywhere_is_not_frozen() -> None:
    assert not find_frozen(np.full((6, 50), 0.5, np.float32), 25).any()


def test_missing_samples_are_not_frozen() -> None:
    series = moving()
    series[1] = np.nan
    assert not find_frozen(series, 25).any()
