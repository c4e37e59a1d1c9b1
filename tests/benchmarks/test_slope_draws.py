"""Slopes of draws of machines: those of regressions on the instances as often as they are drawn."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from forewarn.models.prediction.log_odds import sigmoid
from forewarn.models.prediction.reliability import calibration_slope

N = 3000


@pytest.fixture(scope="module")
def slopes_of(benchmark_module: Callable[[str], ModuleType]) -> Any:
    return benchmark_module("slope_draws").slopes_of


@pytest.mark.parametrize("true_slope", [0.5, 1.0, 2.0])
def test_a_draw_has_the_slope_of_its_instances_repeated(slopes_of: Any, true_slope: float) -> None:
    rng = np.random.default_rng(1)
    log_odds, machine = rng.normal(-2, 1.5, N), rng.integers(0, 20, N)
    labels = (rng.random(N) < sigmoid(true_slope * log_odds)).astype(np.int8)
    drawn = rng.multinomial(20, np.full(20, 0.05)).astype(np.float64)
    times = np.stack([np.ones(20), drawn])
    repeated = [np.repeat(np.arange(N), counts[machine].astype(int)) for counts in times]
    expected = [calibration_slope([(sigmoid(log_odds[r]), labels[r])])[0] for r in repeated]
    assert slopes_of(log_odds, labels, machine, times) == pytest.approx(expected, rel=0.01)
    assert abs(expected[0] - true_slope) < 0.2


def test_a_draw_of_one_label_and_equal_log_odds_have_no_slope(slopes_of: Any) -> None:
    labels, machine = np.array([0, 0, 1, 0], np.int8), np.array([0, 0, 1, 1])
    draws = np.array([[2.0, 0.0], [1.0, 1.0]])
    slopes = slopes_of(np.array([-3.0, -2.0, 1.0, 2.0]), labels, machine, draws)
    assert np.isnan(slopes).tolist() == [True, False]
    assert np.isnan(slopes_of(np.zeros(4), labels, machine, draws)).all()
