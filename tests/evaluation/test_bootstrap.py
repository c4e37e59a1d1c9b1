from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.evaluation.bootstrap import bootstrap_weights, percentile_interval

NAN = float("nan")


@given(st.integers(1, 40), st.integers(0, 2**32), st.integers(1, 20))
def test_draws_have_as_many_machines(n_machines: int, seed: int, n_draws: int) -> None:
    draws = bootstrap_weights(n_machines, seed=seed, n_draws=n_draws)
    assert draws.shape == (n_draws, n_machines)
    assert (draws >= 0).all()
    assert (draws == np.round(draws)).all()
    assert (draws.sum(axis=1) == n_machines).all()


def test_seed_determines_draws() -> None:
    assert np.array_equal(bootstrap_weights(9, seed=4), bootstrap_weights(9, seed=4))
    assert not np.array_equal(bootstrap_weights(9, seed=4), bootstrap_weights(9, seed=5))


def test_machines_are_drawn_uniformly_with_replacement() -> None:
    draws = bootstrap_weights(10, seed=0, n_draws=4_000)
    # The probability of not being drawn is (9/10)^10.
    assert np.mean(draws == 0) == pytest.approx(0.9**10, abs=0.02)
    assert draws.mean(axis=0) == pytest.approx(np.ones(10), abs=0.08)


def test_single_machine_is_drawn_once() -> None:
    assert (bootstrap_weights(1, seed=3) == 1).all()


def test_interval_covers_central_95_percent() -> None:
    assert percentile_interval(np.arange(201.0)) == pytest.approx((5.0, 195.0))


def test_draws_without_value_are_excluded() -> None:
    assert percentile_interval([NAN, 3.0, np.inf, 1.0]) == percentile_interval([1.0, 3.0])


def test_too_few_values_give_no_interval() -> None:
    assert percentile_interval([1.0, 1.0, NAN, NAN]) == (1.0, 1.0)
    assert percentile_interval([1.0, NAN, NAN]) is None
    assert percentile_interval([NAN]) is None
    assert percentile_interval([]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_interval_is_ordered_within_draws(values: list[float]) -> None:
    found = percentile_interval(values)
    assert found is not None
    assert min(values) <= found[0] <= found[1] <= max(values)
