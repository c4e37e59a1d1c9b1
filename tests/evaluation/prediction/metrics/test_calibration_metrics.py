"""Calibration metrics, and the minimum of failures they need."""

from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.prediction.metrics.calibration_metrics import calibration_metrics
from forewarn.models.prediction.reliability import LabelledProbabilities


@pytest.mark.parametrize(("n_failing", "has_interval"), [(9, False), (10, True)])
def test_slope_interval_needs_ten_failing_machines(n_failing: int, *, has_interval: bool) -> None:
    rng = np.random.default_rng(4)
    machine = np.repeat(np.arange(40), 25)
    labels = ((machine < n_failing) & (rng.random(1000) < 0.5)).astype(np.int8)
    chances = np.clip(0.3 * labels + 0.6 * rng.random(1000), 0.01, 0.99)
    judged = [LabelledProbabilities(chances, labels, machine)]
    draws = rng.multinomial(40, np.full(40, 1 / 40), size=200).astype(np.float64)
    figures = calibration_metrics(judged, draws)
    assert figures.slope is not None
    assert figures.slope > 0
    assert (figures.slope_interval is not None) == has_interval
    if figures.slope_interval is not None:
        low, high = figures.slope_interval
        assert low < figures.slope < high
