from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.prediction.calibration import (
    Calibration,
    fit_calibration,
    prior_correction,
)
from forewarn.models.prediction.linear.log_odds import logit, sigmoid

IDENTITY = Calibration(slope=1.0, intercept=0.0)


def drawn(
    slope: float, intercept: float, n: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]]:
    """Draw scores with true log odds `intercept + slope * logit(score)`, and outcomes."""
    rng = np.random.default_rng(0)
    scores = sigmoid(rng.normal(0.0, 1.5, n))
    truth = sigmoid(intercept + slope * logit(scores))
    return scores, (rng.random(n) < truth).astype(np.int8)


def test_apply_by_hand() -> None:
    # Odds of 3 squared, times 2, are 18.
    assert np.allclose(Calibration(2.0, np.log(2.0)).apply([0.75]), [18 / 19])


@given(st.lists(st.floats(0.0, 1.0), min_size=2), st.floats(0.05, 3.0), st.floats(-8.0, 8.0))
def test_calibration_is_monotone(scores: list[float], slope: float, intercept: float) -> None:
    probabilities = Calibration(slope, intercept).apply(sorted(scores))
    assert (np.diff(probabilities) >= 0).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


def test_negative_slope_is_refused() -> None:
    with pytest.raises(ValueError, match="`slope` must be positive and finite, got -1"):
        Calibration(slope=-1.0, intercept=0.0)


def test_json_is_lossless() -> None:
    calibration = Calibration(slope=1 / 3, intercept=-5.1, ceiling=1 / 7)
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_prior_correction_maps_balance() -> None:
    correction = prior_correction(0.5, 0.0027)
    assert correction.slope == 1.0
    assert np.allclose(correction.apply([0.5]), [0.0027])


def test_prior_correction_scales_odds() -> None:
    # From odds of 1 to odds of 1/9: odds of 3 become a third.
    assert np.allclose(prior_correction(0.5, 0.1).apply([0.75]), [0.25])


@pytest.mark.parametrize(("trained", "true"), [(0.0, 0.1), (0.5, 1.0)])
def test_prior_correction_refuses_single_class(trained: float, true: float) -> None:
    with pytest.raises(ValueError, match="must lie between 0 and 1, got"):
        prior_correction(trained, true)


def test_fit_recovers_parameters() -> None:
    scores, labels = drawn(0.6, -1.5, 40_000)
    fitted = fit_calibration(scores, labels, start=IDENTITY)
    assert fitted.slope == pytest.approx(0.6, abs=0.05)
    assert fitted.intercept == pytest.approx(-1.5, abs=0.05)


def test_fit_stays_at_start_without_data() -> None:
    start = Calibration(0.9, -4.0)
    fitted = fit_calibration(np.array([]), np.array([], dtype=np.int8), start=start)
    assert fitted == start


def test_fit_without_failures_lowers_probabilities() -> None:
    scores, labels = drawn(1.0, 0.0, 500)
    fitted = fit_calibration(scores, np.zeros_like(labels), start=Calibration(1.0, -4.0))
    assert -12.0 < fitted.intercept < -4.0


def test_reversed_ranking_keeps_positive_slope() -> None:
    scores, labels = drawn(-1.0, 0.0, 5_000)
    fitted = fit_calibration(scores, labels, start=IDENTITY)
    assert fitted.slope == 0.05
    assert fitted.apply(scores).mean() == pytest.approx(labels.mean(), abs=0.01)


def test_gradient_is_zero_at_fit() -> None:
    scores, labels = drawn(0.8, -1.0, 300)
    weights = np.linspace(0.1, 1.0, 300)
    fitted = fit_calibration(scores, labels, start=IDENTITY, weights=weights)
    residual = weights * (fitted.apply(scores) - labels)
    assert residual.sum() + fitted.intercept / 2.0**2 == pytest.approx(0.0, abs=1e-6)
    slope_part = residual @ logit(scores) + (fitted.slope - 1.0) / 0.5**2
    assert slope_part == pytest.approx(0.0, abs=1e-6)


def test_weights_act_like_repeated_instances() -> None:
    scores, labels = drawn(0.5, -1.0, 200)
    weights = np.where(labels == 1, 3.0, 1.0)
    repeats = weights.astype(int)
    weighted = fit_calibration(scores, labels, start=IDENTITY, weights=weights)
    repeated = fit_calibration(
        np.repeat(scores, repeats), np.repeat(labels, repeats), start=IDENTITY
    )
    assert weighted.slope == pytest.approx(repeated.slope)
    assert weighted.intercept == pytest.approx(repeated.intercept)


def test_less_weight_stays_closer_to_start() -> None:
    scores, labels = drawn(0.3, -1.0, 400)
    slopes = [
        fit_calibration(scores, labels, start=IDENTITY, weights=np.full(400, weight)).slope
        for weight in (1.0, 1 / 14, 1e-6)
    ]
    assert slopes[0] < slopes[1] < slopes[2]
    assert slopes[2] == pytest.approx(1.0, abs=1e-3)


def saturating(n: int, ceiling: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]]:
    rng = np.random.default_rng(11)
    log_odds = rng.normal(0.0, 3.0, n)
    chance = ceiling / (1.0 + np.exp(4.0 - 1.5 * log_odds))
    return 1.0 / (1.0 + np.exp(-log_odds)), (rng.random(n) < chance).astype(np.int8)


def test_ceiling_is_fitted_for_saturating_rates() -> None:
    scores, labels = saturating(60_000, 0.15)
    fitted = fit_calibration(scores, labels, start=Calibration(1.0, -4.0))
    assert 0.1 < fitted.ceiling < 0.25
    head = np.argsort(-scores)[:3_000]
    assert fitted.apply(scores[head]).mean() == pytest.approx(labels[head].mean(), abs=0.03)
    assert fitted.apply(scores).mean() == pytest.approx(labels.mean(), rel=0.05)


def test_no_ceiling_without_evidence() -> None:
    scores, labels = saturating(60_000, 1.0)
    assert fit_calibration(scores, labels, start=Calibration(1.0, -4.0)).ceiling == 1.0
    few, rare = saturating(300, 0.15)
    weights = np.full(len(few), 0.1)
    fitted = fit_calibration(few, rare, start=Calibration(1.0, -4.0), weights=weights)
    assert fitted.ceiling > 0.5


def test_older_files_have_no_ceiling() -> None:
    assert Calibration.from_dict({"slope": 0.9, "intercept": -4.0}) == Calibration(0.9, -4.0)
    with pytest.raises(ValueError, match="`ceiling` must be in"):
        Calibration(1.0, 0.0, 0.0)
