"""Criteria learned from healthy machines: the wanted rate, outliers, and small groups."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forewarn.models.inspection.criterion import HealthyTail, healthy_units, shared_shape
from forewarn.models.inspection.fleet_comparison import compare_levels, compare_scatter


def fleet(seed: int, n_machines: int = 40, n_values: int = 20) -> np.ndarray:
    """Return sorted values of healthy machines: 1 % within, 0.5 % between."""
    generator = np.random.default_rng(seed)
    levels = 100.0 * (1.0 + 0.005 * generator.standard_normal((n_machines, 1)))
    noise = 0.01 * generator.standard_normal((n_machines, n_values))
    return np.sort(levels * (1.0 + noise), axis=1)


def test_tail_of_small_group_is_its_upper_half() -> None:
    tail = HealthyTail.from_distances(np.arange(20.0))
    assert (tail.start, tail.share, len(tail.excesses)) == (9.0, 0.5, 10)
    large = HealthyTail.from_distances(np.arange(400.0))
    assert (large.share, len(large.excesses)) == (0.25, 100)


def test_limit_of_an_exponential_tail() -> None:
    # Lomax: 10 excesses with the mean 2, exceeded by a tenth of a half.
    tail = HealthyTail(1.0, np.full(10, 2.0), 0.5)
    assert tail.limit(0.05, 0.0) == pytest.approx(1.0 + 20.0 * (10.0**0.1 - 1.0))
    certain = HealthyTail(1.0, np.full(100_000, 2.0), 0.5)
    assert certain.limit(0.05, 0.0) == pytest.approx(1.0 + 2.0 * math.log(10.0), rel=1e-3)


def test_few_machines_mean_a_higher_limit() -> None:
    few, many = (HealthyTail(1.0, np.full(n, 2.0), 0.5).limit(1e-6, 0.0) for n in (5, 50))
    assert few > 3 * many


@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_observed_rate_is_the_wanted_rate(rate: float) -> None:
    generator = np.random.default_rng(3)
    hits = trials = 0
    for _ in range(400):
        tail = HealthyTail.from_distances(generator.exponential(size=40))
        hits += int((generator.exponential(size=2000) > tail.limit(rate, 0.0)).sum())
        trials += 2000
    assert hits / trials == pytest.approx(rate, rel=0.35)


def test_shape_of_pooled_tails() -> None:
    generator = np.random.default_rng(5)
    groups = [generator.exponential(scale, 40) for scale in range(1, 101)]
    assert abs(shared_shape([HealthyTail.from_distances(g) for g in groups])) < 0.06
    heavy = [generator.pareto(4.0, 400) for _ in range(50)]
    assert 0.1 < shared_shape([HealthyTail.from_distances(g) for g in heavy]) <= 0.4
    assert shared_shape([HealthyTail.from_distances(groups[0])]) == 0.0


def test_outliers_are_not_healthy() -> None:
    distances = np.append(np.linspace(0.0, 1.0, 38), [9.0, 11.0])
    everything = np.ones(40, dtype=np.bool_)
    assert healthy_units(distances, everything).tolist() == [True] * 38 + [False] * 2


def test_slow_machine_is_beyond_the_criterion_and_a_fast_one_is_not() -> None:
    values = fleet(1)
    values[0] *= 0.92
    values[1] *= 1.08
    compared = compare_levels(values, higher_is_better=True)
    assert compared is not None
    assert compared.tail is not None
    assert np.flatnonzero(compared.beyond(compared.tail.limit(1e-5, 0.0))).tolist() == [0]
    assert not compared.healthy[:2].any()


def test_unsteady_machine_is_found_by_scatter_and_a_steady_one_is_not() -> None:
    values = fleet(2)
    values[0] = 100.0 + 5.0 * (values[0] - values[0].mean())
    values[1] = 100.0
    compared = compare_scatter(values)
    assert compared is not None
    assert compared.tail is not None
    assert np.flatnonzero(compared.beyond(compared.tail.limit(1e-5, 0.0))).tolist() == [0]


def test_one_percent_is_the_smallest_effect() -> None:
    values = np.full((40, 3), 100.0)
    values[0] = 99.5
    values[1] = 98.0
    compared = compare_levels(values, higher_is_better=True)
    assert compared is not None
    assert np.flatnonzero(compared.beyond(0.0)).tolist() == [1]


def test_nothing_is_relative_to_zero() -> None:
    assert compare_levels(np.zeros((10, 2)), higher_is_better=False) is None


def test_earlier_runs_are_no_part_of_the_reference() -> None:
    values = np.vstack([fleet(3, 20), 0.8 * fleet(4, 20)])
    judged = np.repeat([True, False], 20)
    compared = compare_levels(values, higher_is_better=True, judged=judged)
    assert compared is not None
    assert compared.references == pytest.approx(100.0, rel=0.01)
    assert compared.distances[20:] == pytest.approx(0.2, abs=0.03)
    assert not compared.healthy[20:].any()
