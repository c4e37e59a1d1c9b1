"""Criteria learned from healthy machines: the wanted rate, outliers, and small groups."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forewarn.models.inspection.criterion import HealthyTail, PooledTail, healthy_units
from forewarn.models.inspection.fleet_comparison import compare_levels, compare_scatter


def fleet(seed: int, n_machines: int = 40, n_values: int = 20) -> np.ndarray:
    """Return sorted values of healthy machines: 1 % within, 0.5 % between."""
    generator = np.random.default_rng(seed)
    levels = 100.0 * (1.0 + 0.005 * generator.standard_normal((n_machines, 1)))
    noise = 0.01 * generator.standard_normal((n_machines, n_values))
    return np.sort(levels * (1.0 + noise), axis=1)


NOTHING = np.empty(0)


def tails(distances: np.ndarray) -> list[HealthyTail]:
    """Return the tail of each row."""
    return [HealthyTail.from_distances(row, NOTHING) for row in distances]


def test_tail_of_small_group_is_its_upper_half() -> None:
    tail = HealthyTail.from_distances(np.arange(20.0), np.array([30.0]))
    assert (tail.start, tail.share, len(tail.excesses)) == (9.0, 0.5, 10)
    assert (tail.outliers.tolist(), tail.units) == ([21.0], 21)
    large = HealthyTail.from_distances(np.arange(400.0), NOTHING)
    assert (large.share, len(large.excesses)) == (0.25, 100)


def test_ratios_are_by_the_scale_of_the_others() -> None:
    tail = HealthyTail(1.0, np.array([1.0, 2.0, 3.0]), 0.5, np.array([8.0]))
    assert tail.ratios.tolist() == pytest.approx([1 / 2.5, 2 / 2.0, 3 / 1.5, 8 / 2.0])
    assert len(HealthyTail(1.0, np.array([0.0, 0.0, 3.0]), 0.5, NOTHING).ratios) == 0


def test_limit_of_exponential_distances() -> None:
    """The tail of many exponential values is 1 wide: ln(share / rate) after its start."""
    groups = tails(np.random.default_rng(1).exponential(size=(200, 400)))
    pooled = PooledTail.from_tails(groups)
    exact = HealthyTail(2.0, np.full(100, 1.0), 0.25, NOTHING)
    assert pooled.units == 80_000
    assert pooled.limit(exact, 1e-5) == pytest.approx(2.0 + math.log(0.25e5), rel=0.15)
    assert pooled.limit(exact, 2e-6) < pooled.limit(exact, 1e-6)


def test_little_data_means_a_higher_limit_and_a_weaker_bound() -> None:
    distances = np.random.default_rng(2).exponential(size=(200, 40))
    few, many = (PooledTail.from_tails(tails(distances[:n])) for n in (2, 200))
    exact = HealthyTail(1.0, np.full(20, 1.0), 0.5, NOTHING)
    assert few.limit(exact, 1e-5) > 1.2 * many.limit(exact, 1e-5)
    assert 1e-5 <= many.bound(1e-5) < 1e-4


@pytest.mark.parametrize("noise", ["exponential", "normal", "t4"])
def test_observed_rate_is_at_most_twice_the_wanted_rate(noise: str) -> None:
    """Learned from 4,000 healthy units, and checked where their data end: one in 2,000."""
    generator = np.random.default_rng(3)

    def draw(*shape: int) -> np.ndarray:
        return {
            "exponential": generator.exponential(size=shape),
            "normal": np.abs(generator.standard_normal(shape)),
            "t4": np.abs(generator.standard_t(4, shape)),
        }[noise]

    hits = 0
    for _ in range(4):
        pooled = PooledTail.from_tails(tails(draw(100, 40)))
        for tail in tails(draw(200, 40)):
            hits += int((draw(1_000) > pooled.limit(tail, 5e-4)).sum())
    assert 1e-4 < hits / (4 * 200 * 1_000) < 1e-3


def test_heavy_tail_is_not_taken_for_an_exponential_one() -> None:
    """Student's t with 4 degrees of freedom exceeds 59 once in two million values."""
    groups = tails(np.abs(np.random.default_rng(4).standard_t(4, (200, 1_000))))
    pooled = PooledTail.from_tails(groups)
    limits = [pooled.limit(tail, 5e-7) for tail in groups]
    assert 35.0 < float(np.median(limits)) < 90.0


@pytest.mark.parametrize("n_groups", [10, 100])
def test_defects_do_not_widen_the_criterion(n_groups: int) -> None:
    """Machines that are 10 and 20 deviations off, in one group of ten."""
    distances = np.abs(np.random.default_rng(5).standard_normal((n_groups, 40)))
    clean = tails(distances)
    mixed = [
        HealthyTail(
            *(tail.start, tail.excesses, tail.share),
            np.array([10.0, 20.0]) if number % 10 == 0 else NOTHING,
        )
        for number, tail in enumerate(clean)
    ]
    limits = [PooledTail.from_tails(groups).limit(clean[0], 1e-5) for groups in (clean, mixed)]
    assert limits[1] < 1.5 * limits[0]


def test_rate_is_supported_down_to_a_twentieth_of_what_the_units_show() -> None:
    pooled = PooledTail.from_tails(tails(np.random.default_rng(6).exponential(size=(10, 50))))
    assert pooled.supported_rate(1e-6) == 1 / 10_000
    assert pooled.supported_rate(1e-3) == 1e-3


def test_without_a_scale_nothing_is_learned() -> None:
    pooled = PooledTail.from_tails(tails(np.zeros((3, 20))))
    assert pooled.units == 0
    assert pooled.limit(HealthyTail(0.5, np.zeros(10), 0.5, NOTHING), 1e-6) == 0.5


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
    limit = PooledTail.from_tails([compared.tail]).limit(compared.tail, 1e-4)
    assert np.flatnonzero(compared.beyond(limit)).tolist() == [0]
    assert not compared.healthy[:2].any()


def test_unsteady_machine_is_found_by_scatter_and_a_steady_one_is_not() -> None:
    values = fleet(2)
    values[0] = 100.0 + 5.0 * (values[0] - values[0].mean())
    values[1] = 100.0
    compared = compare_scatter(values)
    assert compared is not None
    assert compared.tail is not None
    limit = PooledTail.from_tails([compared.tail]).limit(compared.tail, 1e-4)
    assert np.flatnonzero(compared.beyond(limit)).tolist() == [0]


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
