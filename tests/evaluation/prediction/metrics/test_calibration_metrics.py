"""Calibration metrics, and the minimum of failures they need."""

from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.prediction.metrics.calibration_metrics import calibration_metrics
from forewarn.models.prediction.linear.log_odds import sigmoid
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


def test_ratio_detects_low_probabilities_with_right_slope() -> None:
    rng = np.random.default_rng(7)
    machine = np.repeat(np.arange(400), 50)
    log_odds = rng.normal(-3.0, 1.0, len(machine))
    labels = (rng.random(len(machine)) < sigmoid(log_odds)).astype(np.int8)
    judged = [LabelledProbabilities(sigmoid(log_odds - 0.43), labels, machine)]
    draws = rng.multinomial(400, np.full(400, 1 / 400), size=200).astype(np.float64)
    figures = calibration_metrics(judged, draws)
    assert figures.slope == pytest.approx(1.0, abs=0.1)
    ratio = labels.sum() / judged[0].probabilities.sum()
    assert figures.ratio == pytest.approx(ratio)
    assert figures.ratio_interval is not None
    low, high = figures.ratio_interval
    assert 1.2 < low < ratio < high < 1.7
