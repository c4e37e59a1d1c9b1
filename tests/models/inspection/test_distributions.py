"""Areas between distribution functions: examples countable by hand, and properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forewarn.models.inspection.distributions import (
    harmful_shares,
    medoid,
    quantile_functions,
    reference_quantiles,
    relative_areas,
)

VALUES = arrays(np.float64, (7, 5), elements=st.floats(1.0, 100.0))


def test_area_is_mean_difference_of_sorted_values() -> None:
    quantiles = quantile_functions(np.array([3.0, 1.0, 2.0, 6.0, 4.0, 5.0]), np.array([3, 3]))
    assert quantiles.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert relative_areas(quantiles, quantiles[0], 2.0).tolist() == [0.0, 1.5]


def test_units_with_different_counts_share_levels() -> None:
    quantiles = quantile_functions(np.array([5.0, 4.0, 1.0, 3.0, 2.0]), np.array([1, 4]))
    assert quantiles.tolist() == [[5, 5, 5, 5], [1, 2, 3, 4]]


def test_reference_is_median_of_included_units() -> None:
    quantiles = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0], [50.0, 90.0]])
    included = np.array([True, True, True, False])
    assert reference_quantiles(quantiles, included).tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("higher", "expected"), [(True, [1.0, 0.0, 0.5]), (False, [0.0, 1.0, 0.5])]
)
def test_harmful_share_by_direction(higher: bool, expected: list[float]) -> None:
    reference = np.array([10.0, 10.0])
    quantiles = np.array([[8.0, 9.0], [11.0, 12.0], [9.0, 11.0]])
    shares = harmful_shares(quantiles, reference, higher_is_better=higher)
    assert shares.tolist() == expected


def test_equal_distributions_have_no_harmful_share() -> None:
    same = np.ones((1, 3))
    assert harmful_shares(same, same[0], higher_is_better=True).tolist() == [0.0]


@given(VALUES)
def test_area_is_a_distance(values: np.ndarray) -> None:
    quantiles = np.sort(values, axis=1)
    areas = [relative_areas(quantiles, row, 1.0) for row in quantiles]
    table = np.array(areas)
    assert np.allclose(table, table.T)
    assert np.allclose(np.diag(table), 0.0)
    assert (table[0, 2] <= table[0, 1] + table[1, 2] + 1e-9).all()


@given(VALUES)
def test_reference_is_a_quantile_function_and_ignores_order(values: np.ndarray) -> None:
    quantiles = np.sort(values, axis=1)
    everything = np.ones(len(quantiles), dtype=np.bool_)
    reference = reference_quantiles(quantiles, everything)
    assert (np.diff(reference) >= 0).all()
    assert np.array_equal(reference, reference_quantiles(quantiles[::-1], everything))


def test_medoid_is_the_unit_in_the_middle() -> None:
    assert medoid(np.array([[1.0], [2.0], [3.0], [10.0], [2.4]])) == 4
