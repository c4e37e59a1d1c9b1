from __future__ import annotations

import json
import math

import numpy as np
import pytest

from forewarn.features.array_types import Int64Array
from forewarn.features.prediction.residuals import ResidualFit

POWER = np.linspace(50.0, 400.0, 200)
NOBODY = np.full(200, -1, dtype=np.int64)


def _group(number: int, n: int = 1) -> Int64Array:
    return np.full(n, number, dtype=np.int64)


def test_a_straight_line_is_found() -> None:
    fit = ResidualFit.fit(POWER, 30.0 + 0.1 * POWER, NOBODY, 0)
    inside = np.array([100.0, 200.0, 300.0])
    assert fit.expected(inside, _group(-1, 3)) == pytest.approx([40.0, 50.0, 60.0], abs=0.05)


def test_a_bend_is_followed() -> None:
    bent = np.maximum(POWER - 200.0, 0.0)
    fit = ResidualFit.fit(POWER, bent, NOBODY, 0)
    expected = fit.expected(np.array([80.0, 390.0]), _group(-1, 2))
    assert expected == pytest.approx([0.0, 190.0], abs=12.0)


def test_every_group_has_an_offset() -> None:
    group = np.arange(200) % 2
    fit = ResidualFit.fit(POWER, 0.1 * POWER + 7.0 * group, group, 2)
    first, second = (fit.expected(np.array([200.0]), _group(i))[0] for i in (0, 1))
    assert second - first == pytest.approx(7.0, abs=0.05)
    assert first == pytest.approx(20.0, abs=0.1)
    assert math.isfinite(fit.expected(np.array([200.0]), _group(-1))[0])


def test_what_lies_outside_the_fitted_range_is_expected_as_at_its_end() -> None:
    fit = ResidualFit.fit(POWER, 30.0 + 0.1 * POWER, NOBODY, 0)
    low, high, wild, never = fit.expected(np.array([-1e9, 1e9, 5_000.0, -np.inf]), _group(-1, 4))
    assert high == wild == pytest.approx(70.0, abs=0.5)
    assert low == never == pytest.approx(35.0, abs=0.5)


def test_a_missing_reading_expects_nothing() -> None:
    fit = ResidualFit.fit(POWER, 30.0 + 0.1 * POWER, NOBODY, 0)
    assert np.isnan(fit.expected(np.array([np.nan]), _group(-1))).all()


def test_pairs_with_a_missing_reading_do_not_count() -> None:
    x, y = POWER.copy(), 30.0 + 0.1 * POWER
    x[::3], y[1::3] = np.nan, np.nan
    fit = ResidualFit.fit(x, y, NOBODY, 0)
    assert fit.expected(np.array([200.0]), _group(-1)) == pytest.approx([50.0], abs=0.1)


def test_a_few_wild_readings_bend_nothing() -> None:
    x = np.tile(POWER, 5)
    y = 30.0 + 0.1 * x
    y[[100, 700]] = 1e9
    fit = ResidualFit.fit(x, y, np.tile(NOBODY, 5), 0)
    assert fit.expected(np.array([100.0, 300.0]), _group(-1, 2)) == pytest.approx([40, 60], abs=2)


@pytest.mark.parametrize("n", [0, 1, 9])
def test_too_few_pairs_expect_nothing_at_all(n: int) -> None:
    fit = ResidualFit.fit(POWER[:n], POWER[:n], NOBODY[:n], 3)
    assert fit.expected(np.array([0.0, 500.0]), np.array([2, -1])).tolist() == [0.0, 0.0]


def test_a_reading_that_never_changes_can_be_given() -> None:
    fit = ResidualFit.fit(np.full(50, 7.0), np.arange(50.0), _group(-1, 50), 0)
    assert fit.expected(np.array([7.0]), _group(-1)) == pytest.approx([24.5], abs=0.1)


def test_saved_and_read_it_expects_the_same() -> None:
    group = np.arange(200) % 3
    fit = ResidualFit.fit(POWER, np.sin(POWER) + group, group, 3)
    again = ResidualFit.from_dict(json.loads(json.dumps(fit.to_dict())))
    x = np.array([-5.0, 60.0, 123.4, 999.0])
    assert np.array_equal(fit.expected(x, _group(1, 4)), again.expected(x, _group(1, 4)))


def test_saved_without_groups_it_can_be_read() -> None:
    fit = ResidualFit.fit(POWER, POWER, NOBODY, 0)
    again = ResidualFit.from_dict(json.loads(json.dumps(fit.to_dict())))
    assert again.expected(POWER, NOBODY).tolist() == fit.expected(POWER, NOBODY).tolist()


def test_more_pairs_than_the_sample_are_thinned_not_cut_off() -> None:
    x = np.linspace(0.0, 1.0, 120_000)
    fit = ResidualFit.fit(x, x, np.full(len(x), -1), 0)
    assert fit.expected(np.array([0.9]), _group(-1)) == pytest.approx([0.9], abs=0.01)
