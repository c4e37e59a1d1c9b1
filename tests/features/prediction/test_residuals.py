from __future__ import annotations

import json
import math

import numpy as np
import pytest

from forewarn.features.array_types import Int64Array
from forewarn.features.prediction.residuals import ResidualFit

POWER = np.linspace(50.0, 400.0, 200)
UNKNOWN_GROUP = np.full(200, -1, dtype=np.int64)


def _group(number: int, n: int = 1) -> Int64Array:
    return np.full(n, number, dtype=np.int64)


def test_linear_relation_is_fitted() -> None:
    fit = ResidualFit.fit(POWER, 30.0 + 0.1 * POWER, UNKNOWN_GROUP, 0)
    inside = np.array([100.0, 200.0, 300.0])
    assert fit.expected(inside, _group(-1, 3)) == pytest.approx([40.0, 50.0, 60.0], abs=0.05)


def test_piecewise_relation_is_fitted() -> None:
    bent = np.maximum(POWER - 200.0, 0.0)
    fit = ResidualFit.fit(POWER, bent, UNKNOWN_GROUP, 0)
    expected = fit.expected(np.array([80.0, 390.0]), _group(-1, 2))
    assert expected == pytest.approx([0.0, 190.0], abs=12.0)


def test_groups_have_offsets() -> None:
    group = np.arange(200) % 2
    fit = ResidualFit.fit(POWER, 0.1 * POWER + 7.0 * group, group, 2)
    first, second = (fit.expected(np.array([200.0]), _group(i))[0] for i in (0, 1))
    assert second - first == pytest.approx(7.0, abs=0.05)
    assert first == pytest.approx(20.0, abs=0.1)
    assert math.isfinite(fit.expected(np.array([200.0]), _group(-1))[0])


def test_extrapolation_is_constant() -> None:
    fit = ResidualFit.fit(POWER, 30.0 + 0.1 * POWER, UNKNOWN_GROUP, 0)
    low, high, wild, never = fit.expected(np.array([-1e9, 1e9, 5_000.0, -np.inf]), _group(-1, 4))
    assert high == wild == pytest.approx(70.0, abs=0.5)
    assert low == never == pytest.approx(35.0, abs=0.5)


def test_missing_reading_gives_nan() -> None:
    fit = ResidualFit.fit(POWER, 30.0 + 0.1 * POWER, UNKNOWN_GROUP, 0)
    assert np.isnan(fit.expected(np.array([np.nan]), _group(-1))).all()


def test_pairs_with_missing_reading_do_not_count() -> None:
    x, y = POWER.copy(), 30.0 + 0.1 * POWER
    x[::3], y[1::3] = np.nan, np.nan
    fit = ResidualFit.fit(x, y, UNKNOWN_GROUP, 0)
    assert fit.expected(np.array([200.0]), _group(-1)) == pytest.approx([50.0], abs=0.1)


def test_outliers_do_not_bend_fit() -> None:
    x = np.tile(POWER, 5)
    y = 30.0 + 0.1 * x
    y[[100, 700]] = 1e9
    fit = ResidualFit.fit(x, y, np.tile(UNKNOWN_GROUP, 5), 0)
    assert fit.expected(np.array([100.0, 300.0]), _group(-1, 2)) == pytest.approx([40, 60], abs=2)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_few_pairs_expect_zero(n: int) -> None:
    fit = ResidualFit.fit(POWER[:n], POWER[:n], UNKNOWN_GROUP[:n], 3)
    assert fit.expected(np.array([0.0, 500.0]), np.array([2, -1])).tolist() == [0.0, 0.0]


def test_constant_predictor_is_fitted() -> None:
    fit = ResidualFit.fit(np.full(50, 7.0), np.arange(50.0), _group(-1, 50), 0)
    assert fit.expected(np.array([7.0]), _group(-1)) == pytest.approx([24.5], abs=0.1)


def test_fit_round_trip() -> None:
    group = np.arange(200) % 3
    fit = ResidualFit.fit(POWER, np.sin(POWER) + group, group, 3)
    again = ResidualFit.from_dict(json.loads(json.dumps(fit.to_dict())))
    x = np.array([-5.0, 60.0, 123.4, 999.0])
    assert np.array_equal(fit.expected(x, _group(1, 4)), again.expected(x, _group(1, 4)))


def test_fit_without_groups_round_trip() -> None:
    fit = ResidualFit.fit(POWER, POWER, UNKNOWN_GROUP, 0)
    again = ResidualFit.from_dict(json.loads(json.dumps(fit.to_dict())))
    assert (
        again.expected(POWER, UNKNOWN_GROUP).tolist() == fit.expected(POWER, UNKNOWN_GROUP).tolist()
    )


def test_large_samples_are_thinned_evenly() -> None:
    x = np.linspace(0.0, 1.0, 120_000)
    fit = ResidualFit.fit(x, x, np.full(len(x), -1), 0)
    assert fit.expected(np.array([0.9]), _group(-1)) == pytest.approx([0.9], abs=0.01)
