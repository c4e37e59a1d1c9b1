from __future__ import annotations

import numpy as np
import pytest

from forewarn.models.detection.threshold import (
    MIN_THRESHOLD,
    PRIOR_SPREAD,
    Threshold,
    fit_threshold,
    pooled_spread,
)

DAY_OF_PULLS = 1 / 96  # of 15 minutes


def test_requested_rate_holds_under_assumed_tail() -> None:
    generator = np.random.default_rng(0)
    sizes = np.exp(generator.uniform(np.log(4), np.log(1500), 400)).astype(int)
    tail, slope = 0.2, 0.1

    def draw(sizes: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(slope * np.log(sizes) + generator.exponential(tail, len(sizes))))

    wanted = 2.0  # per day: often enough to be counted below
    found = fit_threshold(draw(sizes), sizes, np.full(400, DAY_OF_PULLS), per_day=wanted)
    assert found.slope == pytest.approx(slope, abs=0.03)
    many = np.exp(generator.uniform(np.log(4), np.log(1500), 40_000)).astype(int)
    passed = draw(many) > np.array([found.at(n) for n in many])
    assert passed.mean() * 96 == pytest.approx(wanted, rel=0.6)


def test_rarer_alarms_need_higher_threshold() -> None:
    highest = np.random.default_rng(1).lognormal(0, 0.3, 60)
    sizes = np.full(60, 16)
    days = np.full(60, DAY_OF_PULLS)
    often, seldom = (fit_threshold(highest, sizes, days, per_day=r) for r in (1.0, 0.01))
    assert seldom.at(16) > often.at(16) > 0.9 * highest.max()


def test_threshold_exceeds_healthy_scores() -> None:
    mostly_still = [0.0] * 12 + [1.0, 1.5, 2.0, 3.0, 3.0, 4.0, 5.0, 6.0]
    found = fit_threshold(mostly_still, [4] * 20, [900 / 86400] * 20, per_day=0.02)
    assert 6.0 < found.at(4) < 60.0


@pytest.mark.parametrize("highest", [0.0, 0.4])
def test_threshold_has_minimum(highest: float) -> None:
    found = fit_threshold([highest] * 1000, [4] * 1000, [0.01] * 1000, per_day=0.02)
    assert found.at(4) == MIN_THRESHOLD


def test_threshold_falls_with_evidence() -> None:
    reached = np.tile([0.9, 1.0, 1.1, 1.2], 100)
    levels = [
        fit_threshold(reached[:n], np.full(n, 8), np.full(n, 0.01), per_day=0.02).at(8)
        for n in (1, 8, 20, 60, 400)
    ]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > 2 * levels[-1] > 2 * 1.2


def test_prior_lowers_threshold_of_listed_machine() -> None:
    threshold = Threshold(0.0, 0.0, 0.5, 0.2)
    eased, plain, raised = threshold.with_prior(("a", "b", "c"), np.array([4.0, 1.0, 0.5]))
    assert eased < plain == threshold.at(3) < raised
    # The weight is the largest ratio by which a false alarm becomes more likely.
    assert np.log(raised / plain) == pytest.approx(0.2 * np.log(2))
    assert 0.0 < np.log(plain / eased) < 0.2 * np.log(4)


def test_no_pull_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one pull"):
        fit_threshold([], [], [], per_day=1.0)


def test_quiet_metric_uses_pooled_spread() -> None:
    generator = np.random.default_rng(3)
    sizes = np.full(60, 8)
    days = np.full(60, DAY_OF_PULLS)
    others = [(generator.lognormal(0.0, 0.8, 60), sizes) for _ in range(30)]
    calm = generator.lognormal(0.0, 0.1, 60)
    alone = fit_threshold(calm, sizes, days, per_day=0.02)
    spread = pooled_spread([*others, (calm, sizes)])
    pooled = fit_threshold(calm, sizes, days, per_day=0.02, spread=spread)
    assert 0.5 < spread < 1.0
    assert pooled.at(8) > 1.5 * alone.at(8)


def test_few_pulls_barely_change_spread() -> None:
    one = [([4.0], [8])] * 40
    assert pooled_spread(one) == PRIOR_SPREAD
    quiet = [([0.0] * 60, [8] * 60)] * 40  # equal low scores have no spread
    assert pooled_spread(quiet) == PRIOR_SPREAD


def test_machine_threshold_has_minimum() -> None:
    threshold = Threshold(0.0, 0.0, 0.5, 0.2, {"a": -3.0, "b": 1.0})
    quiet, loud, stranger = threshold.for_machines(("a", "b", "c"))
    assert (quiet, stranger) == (MIN_THRESHOLD, threshold.at(3))
    assert loud == pytest.approx(threshold.at(3) * np.e)
    weights = np.array([1.0, 1.0, 0.5])
    assert threshold.with_prior(("a", "b", "c"), weights)[:2].tolist() == [quiet, loud]
