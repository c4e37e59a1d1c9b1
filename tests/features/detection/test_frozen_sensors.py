from __future__ import annotations

import numpy as np

from forewarn.features.detection.frozen_sensors import find_frozen


def moving(n: int = 6, ticks: int = 50) -> np.ndarray:
    return np.random.default_rng(0).random((n, ticks)).astype(np.float32)


def test_one_value_for_longer_than_usual_is_a_sensor_that_hangs() -> None:
    series = moving()
    series[2, 20:] = series[2, 20]
    found = find_frozen(series, 25)
    assert found[2, 20:].all()
    assert not found[2, :20].any()
    assert not np.delete(found, 2, axis=0).any()


def test_a_shorter_stand_still_is_believed() -> None:
    series = moving()
    series[2, 20:44] = series[2, 20]
    assert not find_frozen(series, 25).any()


def test_at_a_limit_a_machine_does_nothing_but_its_sensor_works() -> None:
    series = moving()
    series[2, 20:] = 0.0
    series[3, 20:] = 1.0
    assert not find_frozen(series, 25).any()


def test_at_a_limit_from_the_beginning_nothing_shows_that_it_works() -> None:
    series = moving()
    series[2] = 0.0
    assert find_frozen(series, 25)[2].all()


def test_a_metric_that_stands_still_everywhere_hangs_nowhere() -> None:
    assert not find_frozen(np.full((6, 50), 0.5, np.float32), 25).any()


def test_what_is_missing_does_not_hang() -> None:
    series = moving()
    series[1] = np.nan
    assert not find_frozen(series, 25).any()
