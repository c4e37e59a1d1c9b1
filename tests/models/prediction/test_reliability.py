from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.array_types import Float64Array, Int8Array
from forewarn.models.prediction.linear.log_odds import sigmoid
from forewarn.models.prediction.reliability import (
    LabelledProbabilities,
    calibration_slope,
    order_statistics,
    reliability,
    slope_draws,
)


def judged(
    probabilities: Sequence[float] | Float64Array, labels: Sequence[int] | Int8Array
) -> list[LabelledProbabilities]:
    """Return one part, with each row on a different machine."""
    machine = np.arange(len(labels))
    return [
        LabelledProbabilities(np.array(probabilities), np.array(labels, dtype=np.int8), machine)
    ]


@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (0.5, -1.0), (2.0, 1.0)])
def test_calibration_slope_detects_miscalibration(slope: float, intercept: float) -> None:
    rng = np.random.default_rng(0)
    log_odds = rng.normal(0.0, 1.5, 40_000)
    labels = (rng.random(40_000) < sigmoid(intercept + slope * log_odds)).astype(np.int8)
    found = calibration_slope(judged(sigmoid(log_odds), labels))
    assert found == pytest.approx((slope, intercept), abs=0.08)


def test_calibration_slope_by_hand() -> None:
    # 1 of 4 failed at a probability of 1/2, and 3 of 4 at 9/10: log odds of 0 and log 9 became -log
    # 3 and log 3.
    probabilities = np.array([0.5] * 4 + [0.9] * 4)
    labels = np.array([1, 0, 0, 0, 1, 1, 1, 0], dtype=np.int8)
    slope, intercept = calibration_slope(judged(probabilities, labels))
    assert slope == pytest.approx(1.0, abs=1e-5)
    assert intercept == pytest.approx(-np.log(3.0), abs=1e-5)


def test_separated_classes_have_finite_slope() -> None:
    slope, _ = calibration_slope(judged([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1]))
    assert 1.0 < slope < np.inf


def test_calibration_slope_needs_variation() -> None:
    with pytest.raises(ValueError, match="`labels` must hold at least two values"):
        calibration_slope(judged([0.1, 0.2], [0, 0]))
    with pytest.raises(ValueError, match="`probabilities` must hold at least two values"):
        calibration_slope(judged([0.1, 0.1], [0, 1]))


def test_bins_halve_towards_top() -> None:
    probabilities = np.arange(16) / 20
    labels = np.array([0] * 12 + [0, 1, 1, 1], dtype=np.int8)
    bins = reliability(judged(probabilities, labels), 4)
    assert [part.count for part in bins] == [8, 4, 2, 2]
    assert [part.positives for part in bins] == [0, 0, 1, 2]
    assert [part.observed for part in bins] == [0.0, 0.0, 0.5, 1.0]
    assert bins[1].low == 0.4
    assert bins[1].high == 0.55
    assert bins[1].mean_probability == pytest.approx(0.475)


def test_equal_probabilities_share_bin() -> None:
    bins = reliability(judged([0.1] * 10, [0] * 10), 5)
    assert [part.count for part in bins] == [10]


def test_no_instances_no_bins() -> None:
    assert reliability(judged([], [])) == ()
    assert reliability([]) == ()


def test_zero_bins_are_refused() -> None:
    with pytest.raises(ValueError, match="`n_bins` must be at least 1, got 0"):
        reliability(judged([0.1], [0]), 0)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=200), st.integers(1, 12))
def test_bins_count_every_instance_once(values: list[float], n_bins: int) -> None:
    probabilities = np.array(values)
    labels = (np.arange(len(values)) % 3 == 0).astype(np.int8)
    bins = reliability(judged(probabilities, labels), n_bins)
    assert sum(part.count for part in bins) == len(values)
    assert sum(part.positives for part in bins) == labels.sum()
    assert len(bins) <= n_bins
    assert all(lower.high < upper.low for lower, upper in pairwise(bins))


@given(st.lists(st.floats(0.0, 1e300), min_size=1, max_size=60), st.integers(1, 5))
def test_order_statistics_match_sorting(values: list[float], n_parts: int) -> None:
    whole = np.array(values)
    parts = np.array_split(whole, n_parts)
    ranks = np.arange(len(whole))
    np.testing.assert_array_equal(order_statistics(parts, ranks), np.sort(whole))


@given(st.lists(st.sampled_from([0.0, 0.01, 0.3, 0.5, 1.0]), min_size=4, max_size=80))
def test_reliability_of_parts_equals_whole(values: list[float]) -> None:
    probabilities = np.array(values)
    labels = (np.arange(len(values)) % 3 == 0).astype(np.int8)
    whole = judged(probabilities, labels)
    parts = [judged(probabilities[low::3], labels[low::3])[0] for low in range(3)]
    in_parts, at_once = reliability(parts), reliability(whole)
    for one, other in zip(in_parts, at_once, strict=True):
        assert (one.low, one.high, one.count) == (other.low, other.high, other.count)
        assert one.positives == other.positives
        assert one.mean_probability == pytest.approx(other.mean_probability, rel=1e-12)


def test_slope_of_parts_equals_whole() -> None:
    rng = np.random.default_rng(1)
    probabilities, labels = rng.random(500), rng.integers(0, 2, 500).astype(np.int8)
    parts = [judged(probabilities[low::3], labels[low::3])[0] for low in range(3)]
    whole = calibration_slope(judged(probabilities, labels))
    assert calibration_slope(parts) == pytest.approx(whole, abs=1e-7)


def test_slope_draw_matches_resampled_machines() -> None:
    rng = np.random.default_rng(2)
    log_odds, machine = rng.normal(-1.0, 1.5, 6_000), rng.integers(0, 300, 6_000)
    labels = (rng.random(6_000) < sigmoid(0.7 * log_odds)).astype(np.int8)
    rows = LabelledProbabilities(sigmoid(log_odds), labels, machine)
    thirds = [np.s_[low::3] for low in range(3)]
    parts = [LabelledProbabilities(rows.probabilities[i], labels[i], machine[i]) for i in thirds]
    draws = np.vstack([np.ones(300), rng.multinomial(300, np.full(300, 1 / 300), size=20)])
    found = slope_draws(parts, calibration_slope([rows]), draws)
    for drawn, slope in zip(draws, found, strict=True):
        again = np.repeat(np.arange(6_000), drawn[machine].astype(np.int64))
        refitted = calibration_slope(judged(rows.probabilities[again], labels[again]))[0]
        assert slope == pytest.approx(refitted, abs=0.005)


def test_degenerate_draw_has_no_slope() -> None:
    rows = judged([0.1, 0.4, 0.5, 0.9], [0, 1, 0, 1])
    found = slope_draws(rows, calibration_slope(rows), np.array([[0.0, 4.0, 0.0, 0.0]]))
    assert np.isnan(found).all()
