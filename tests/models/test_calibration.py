from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.models.calibration import (
    Calibration,
    calibration_slope,
    fit_calibration,
    prior_correction,
    reliability,
)
from forewarn.models.logits import logit, sigmoid

IDENTITY = Calibration(slope=1.0, intercept=0.0)


def drawn(
    slope: float, intercept: float, n: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]]:
    """Scores whose true log odds are `intercept + slope * logit(score)`, and outcomes."""
    rng = np.random.default_rng(0)
    scores = sigmoid(rng.normal(0.0, 1.5, n))
    truth = sigmoid(intercept + slope * logit(scores))
    return scores, (rng.random(n) < truth).astype(np.int8)


def test_apply_by_hand() -> None:
    # Odds of 3 squared, times 2, are 18.
    assert np.allclose(Calibration(2.0, np.log(2.0)).apply([0.75]), [18 / 19])


@given(st.lists(st.floats(0.0, 1.0), min_size=2), st.floats(0.05, 3.0), st.floats(-8.0, 8.0))
def test_calibration_keeps_the_order(scores: list[float], slope: float, intercept: float) -> None:
    probabilities = Calibration(slope, intercept).apply(sorted(scores))
    assert (np.diff(probabilities) >= 0).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


def test_slope_that_turns_the_order_round_is_refused() -> None:
    with pytest.raises(ValueError, match="`slope` must be positive and finite, got -1"):
        Calibration(slope=-1.0, intercept=0.0)


def test_json_keeps_every_bit() -> None:
    calibration = Calibration(slope=1 / 3, intercept=-5.1)
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_prior_correction_maps_one_balance_to_the_other() -> None:
    correction = prior_correction(0.5, 0.0027)
    assert correction.slope == 1.0
    assert np.allclose(correction.apply([0.5]), [0.0027])


def test_prior_correction_scales_all_odds_alike() -> None:
    # From odds of 1 to odds of 1/9: odds of 3 become a third.
    assert np.allclose(prior_correction(0.5, 0.1).apply([0.75]), [0.25])


@pytest.mark.parametrize(("trained", "true"), [(0.0, 0.1), (0.5, 1.0)])
def test_prior_correction_refuses_a_balance_of_one_class(trained: float, true: float) -> None:
    with pytest.raises(ValueError, match="must lie between 0 and 1, got"):
        prior_correction(trained, true)


def test_fit_finds_the_truth_with_much_data() -> None:
    scores, labels = drawn(0.6, -1.5, 40_000)
    fitted = fit_calibration(scores, labels, start=IDENTITY)
    assert fitted.slope == pytest.approx(0.6, abs=0.05)
    assert fitted.intercept == pytest.approx(-1.5, abs=0.05)


def test_fit_stays_at_the_start_without_data() -> None:
    start = Calibration(0.9, -4.0)
    fitted = fit_calibration(np.array([]), np.array([], dtype=np.int8), start=start)
    assert fitted == start


def test_fit_without_any_failure_lowers_the_probabilities_but_not_to_nothing() -> None:
    scores, labels = drawn(1.0, 0.0, 500)
    fitted = fit_calibration(scores, np.zeros_like(labels), start=Calibration(1.0, -4.0))
    assert -12.0 < fitted.intercept < -4.0


def test_fit_to_a_reversed_ranking_does_not_turn_it_round() -> None:
    scores, labels = drawn(-1.0, 0.0, 5_000)
    fitted = fit_calibration(scores, labels, start=IDENTITY)
    assert fitted.slope == 0.05
    assert fitted.apply(scores).mean() == pytest.approx(labels.mean(), abs=0.01)


def test_fit_has_no_gradient_left() -> None:
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


def test_less_weight_stays_closer_to_the_start() -> None:
    scores, labels = drawn(0.3, -1.0, 400)
    slopes = [
        fit_calibration(scores, labels, start=IDENTITY, weights=np.full(400, weight)).slope
        for weight in (1.0, 1 / 14, 1e-6)
    ]
    assert slopes[0] < slopes[1] < slopes[2]
    assert slopes[2] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.5, -1.0), (2.0, 1.0)])
def test_calibration_slope_finds_what_is_wrong(slope: float, intercept: float) -> None:
    probabilities, labels = drawn(slope, intercept, 40_000)
    found = calibration_slope(probabilities, labels)
    assert found == pytest.approx((slope, intercept), abs=0.08)


def test_calibration_slope_of_two_groups_by_hand() -> None:
    # 1 of 4 failed where 1/2 was said, 3 of 4 where 9/10 was said: log odds of 0 and log 9
    # became -log 3 and log 3.
    probabilities = np.array([0.5] * 4 + [0.9] * 4)
    labels = np.array([1, 0, 0, 0, 1, 1, 1, 0], dtype=np.int8)
    slope, intercept = calibration_slope(probabilities, labels)
    assert slope == pytest.approx(1.0, abs=1e-5)
    assert intercept == pytest.approx(-np.log(3.0), abs=1e-5)


def test_calibration_slope_of_separated_classes_is_finite() -> None:
    slope, _ = calibration_slope(np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 0, 1, 1], np.int8))
    assert 1.0 < slope < np.inf


def test_calibration_slope_needs_both_classes_and_two_probabilities() -> None:
    with pytest.raises(ValueError, match="`labels` must hold at least two values"):
        calibration_slope(np.array([0.1, 0.2]), np.array([0, 0], np.int8))
    with pytest.raises(ValueError, match="`probabilities` must hold at least two values"):
        calibration_slope(np.array([0.1, 0.1]), np.array([0, 1], np.int8))


def test_reliability_halves_towards_the_top() -> None:
    probabilities = np.arange(16) / 20
    labels = np.array([0] * 12 + [0, 1, 1, 1], dtype=np.int8)
    bins = reliability(probabilities, labels, 4)
    assert [one.count for one in bins] == [8, 4, 2, 2]
    assert [one.positives for one in bins] == [0, 0, 1, 2]
    assert [one.observed for one in bins] == [0.0, 0.0, 0.5, 1.0]
    assert bins[1].low == 0.4
    assert bins[1].high == 0.55
    assert bins[1].mean_probability == pytest.approx(0.475)


def test_equal_probabilities_share_a_bin() -> None:
    bins = reliability(np.full(10, 0.1), np.zeros(10, np.int8), 5)
    assert [one.count for one in bins] == [10]


def test_reliability_of_nothing_has_no_bins() -> None:
    assert reliability(np.array([]), np.array([], np.int8)) == ()


def test_reliability_refuses_no_bins() -> None:
    with pytest.raises(ValueError, match="`n_bins` must be at least 1, got 0"):
        reliability(np.array([0.1]), np.array([0], np.int8), 0)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=200), st.integers(1, 12))
def test_reliability_counts_every_instance_once(values: list[float], n_bins: int) -> None:
    probabilities = np.array(values)
    labels = (np.arange(len(values)) % 3 == 0).astype(np.int8)
    bins = reliability(probabilities, labels, n_bins)
    assert sum(one.count for one in bins) == len(values)
    assert sum(one.positives for one in bins) == labels.sum()
    assert len(bins) <= n_bins
    assert all(lower.high < upper.low for lower, upper in pairwise(bins))
