"""Rates of defects, learned from what was drawn at random: counts by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.response.inspection.defect_rates import learned_rates
from forewarn.response.inspection.inspection_plan import FoundDefects, PlannedCheck


def test_without_results_the_assumed_rate_stays() -> None:
    assert learned_rates({"gpu": 0.02}, {}, {"gpu": 0.5}) == {"gpu": pytest.approx(0.02)}


def test_site_with_fewer_defects_than_assumed_lowers_its_rate() -> None:
    # 4 % of 100 assumed inspections are 4, and 0 of 300 own ones: 4 of 400.
    rates = learned_rates({"gpu": 0.04, "cpu": 0.04}, {"gpu": (0, 300)}, {"gpu": 1.0, "cpu": 1.0})
    assert rates == {"gpu": pytest.approx(0.01), "cpu": pytest.approx(0.04)}


def test_checks_that_find_a_half_mean_twice_the_defects() -> None:
    # 0.02 x 0.5 x 100 is 1, and 3 of 300: 4 of 400 inspections find one, of 2 % defects.
    assert learned_rates({"gpu": 0.02}, {"gpu": (3, 300)}, {"gpu": 0.5}) == {
        "gpu": pytest.approx(0.02)
    }


def test_checks_of_a_category_find_more_together() -> None:
    checks = [PlannedCheck(name, "gpu", 1.0) for name in ("gemm", "stress")]
    past = FoundDefects({("gemm", "gpu"): (8, 8)})  # 0.9, and 0.5 of the 0.1 that it leaves
    assert past.share_of_all(checks, "gpu") == pytest.approx(0.95)
    assert past.share_of_all(checks, "cpu") == 0.0


@given(st.floats(0.0, 0.2), st.integers(0, 1000), st.integers(0, 5000), st.floats(0.1, 1.0))
def test_rate_lies_between_the_assumed_and_the_observed(
    assumed: float, hits: int, misses: int, share: float
) -> None:
    total = hits + misses
    rate = learned_rates({"gpu": assumed}, {"gpu": (hits, total)}, {"gpu": share})["gpu"]
    observed = min(1.0, hits / total / share) if total else assumed
    assert min(assumed, observed) - 1e-9 <= rate <= max(assumed, observed) + 1e-9
    assert total or rate == pytest.approx(assumed)
