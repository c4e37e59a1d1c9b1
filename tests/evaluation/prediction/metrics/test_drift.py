from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.evaluation.prediction.metrics.drift import column_drift, population_stability

NAN = float("nan")


def test_worked_example() -> None:
    """Two bins: a half each before, a quarter and three quarters now."""
    before, now = np.array([0.0, 1.0]), np.array([0.0, 1.0, 1.0, 1.0])
    # The edges are at 0.1 to 0.9, so the extremes fall into the first and the last bin.
    expected = (0.25 - 0.5) * math.log(0.25 / 0.5) + (0.75 - 0.5) * math.log(0.75 / 0.5)
    assert population_stability(before, now) == pytest.approx(expected)


def test_identical_column_has_no_drift() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    assert population_stability(values, values) == 0
    assert population_stability(values, values + 3) > 1


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        ([1.0, 2.0], [1.0, 1.0], "constant"),
        ([16.0] * 199 + [8.0], [16.0, 16.0], ""),
        ([16.0] * 199 + [8.0], [8.0, 8.0], "constant"),
        ([16.0] * 98 + [8.0] * 2, [16.0, 16.0], "constant"),
        ([1.0, 1.0], [1.0, 1.0], ""),
        ([1.0, 2.0], [1.0], ""),
        ([1.0, 2.0], [NAN, NAN], "empty"),
        ([NAN, NAN], [NAN, NAN], ""),
        ([1.0, NAN], [1.0, 2.0], ""),
    ],
)
def test_column_states(before: list[float], now: list[float], state: str) -> None:
    found = column_drift(np.array(before), np.array(now))
    assert found.state == state
    assert found.missing_now == sum(map(math.isnan, now)) / len(now)


@given(st.lists(st.floats(-5, 5), min_size=1), st.lists(st.floats(-5, 5), min_size=1))
def test_stability_is_finite_and_nonnegative(before: list[float], now: list[float]) -> None:
    found = population_stability(np.array(before), np.array(now))
    assert 0 <= found < math.inf
