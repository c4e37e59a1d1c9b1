"""Paired differences of methods."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.evaluation.prediction.metrics.paired_differences import (
    PairedDifference,
    paired_differences,
)


def test_common_noise_cancels() -> None:
    noise = np.linspace(-0.2, 0.2, 201)
    draws = {"a_fixed": 0.5 + noise, "b_fixed": 0.4 + noise + 0.01 * np.sin(np.arange(201))}
    found = paired_differences({"a_fixed": 0.5, "b_fixed": 0.4}, draws)
    difference = found["a_fixed"]["b_fixed"]
    assert difference.verdict == "better"
    assert difference.interval is not None
    low, high = difference.interval
    assert 0.089 < low < 0.1 < high < 0.111


def test_only_shared_name_or_strategy_is_compared() -> None:
    values: dict[str, float | None] = {
        "a_fixed": 0.5,
        "b_fixed": 0.4,
        "a_sliding": 0.3,
        "b_sliding": None,
        "last_value_fixed": 0.1,
    }
    found = paired_differences(values, {name: np.zeros(3) for name in values})
    pairs = {(first, second) for first, others in found.items() for second in others}
    assert pairs == {
        ("a_fixed", "b_fixed"),
        ("a_fixed", "a_sliding"),
        ("a_fixed", "last_value_fixed"),
        ("b_fixed", "last_value_fixed"),
    }


def test_no_interval_without_draws() -> None:
    draws = {"a_fixed": np.zeros(0), "b_fixed": np.zeros(5)}
    found = paired_differences({"a_fixed": 0.5, "b_fixed": 0.4}, draws)
    assert found["a_fixed"]["b_fixed"].interval is None
    assert found["a_fixed"]["b_fixed"].verdict == "not comparable"


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-1, 1))
def test_negation_swaps_methods(value: float, low: float, high: float) -> None:
    difference = PairedDifference(value, (min(low, high), max(low, high)))
    swap = {"better": "worse", "worse": "better"}
    assert (-difference).verdict == swap.get(difference.verdict, difference.verdict)
    opposite = -difference
    assert -opposite == difference
