from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.evaluation.prediction.metrics.sequential_tests import (
    confidence_sequence,
    shortfall_evidence,
    surplus_evidence,
)


@pytest.mark.parametrize("weighted", [False, True])
def test_calibrated_streams_rarely_alarm(weighted: bool) -> None:
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(200):
        predicted = rng.beta(1, 5, 300)
        hit = rng.random(300) < predicted
        weight = rng.choice([1.0, 0.25], 300) if weighted else None
        alarms += bool((shortfall_evidence(predicted, hit, weight).total >= 20).any())
    assert alarms <= 10  # 5 %


def test_shortfall_after_long_good_past_is_detected() -> None:
    rng = np.random.default_rng(7)
    delays = []
    for _ in range(20):
        chance = np.concatenate([np.full(300, 0.4), np.full(200, 0.1)])
        evidence = shortfall_evidence(np.full(500, 0.4), rng.random(500) < chance)
        strong = np.flatnonzero(evidence.total >= 20)
        delays.append(strong[0] - 300 if len(strong) else np.inf)
    assert np.median(delays) < 90


def test_shortfall_evidence_by_hand() -> None:
    # At even odds a bet b turns 1 into 1 + b if no GPU fails, and into 1 - b if one does.
    predicted = np.array([0.5, 0.5])
    evidence = shortfall_evidence(predicted, np.array([False, True])).total
    assert evidence[0] == pytest.approx(0.5 * 1.5 + 0.5)  # half of the level is in reserve
    won = np.mean([(1 + b) * (1 - b) for b in (0.1, 0.3, 0.5, 0.7, 0.9)])
    assert evidence[1] == pytest.approx(0.5 * won + 0.5)
    weighted = shortfall_evidence(predicted, np.array([False, True]), np.array([0.5, 1.0]))
    assert weighted.total[0] == pytest.approx(0.5 * 1.25 + 0.5)


def test_strongest_block_starts_at_precision_drop() -> None:
    hit = np.array([True, False] * 100 + [False] * 60)
    begin = shortfall_evidence(np.full(260, 0.4), hit).begin
    assert begin[-1] == 210  # the first start of a block after the 200th
    assert begin[29] == 0


def test_surplus_evidence_by_hand() -> None:
    # At odds of 1 to 4 a bet b turns 1 into 1 + b if a GPU fails, and into 1 - b / 4 if none does.
    least = np.array([0.2, 0.2])
    evidence = surplus_evidence(least, np.array([True, False])).total
    assert evidence[0] == pytest.approx(0.5 * np.mean([1.6, 1.95]) + 0.5)
    won = np.mean([(1 + b) * (1 - b / 4) for b in (0.6, 0.95)])
    assert evidence[1] == pytest.approx(0.5 * won + 0.5)
    weighted = surplus_evidence(least, np.array([True, False]), np.array([0.5, 1.0]))
    assert weighted.total[0] == pytest.approx(0.5 * np.mean([1.3, 1.475]) + 0.5)


@pytest.mark.parametrize("weighted", [False, True])
def test_no_surplus_rarely_alarms(weighted: bool) -> None:
    rng = np.random.default_rng(9)
    alarms = 0
    for _ in range(200):
        least = rng.beta(1, 9, 400) / 2
        hit = rng.random(400) < least
        weight = rng.choice([1.0, 0.25], 400) if weighted else None
        alarms += bool((surplus_evidence(least, hit, weight).total >= 20).any())
    assert alarms <= 10  # 5 %


@given(st.lists(st.booleans(), min_size=1, max_size=100), st.sampled_from([0.05, 0.4]))
def test_evidence_sums_blocks_and_reserve(hits: list[bool], predicted: float) -> None:
    hit = np.array(hits)
    evidence = shortfall_evidence(np.full(len(hit), predicted), hit)
    won = []
    for start in range(0, len(hit), 30):
        factors = [
            [1 + b * (predicted - h) / (1 - predicted) for h in hit[start:]]
            for b in (0.1, 0.3, 0.5, 0.7, 0.9)
        ]
        number = start // 30 + 1
        won.append(np.mean(np.prod(factors, axis=1)) / (number * (number + 1)))
    assert evidence.total[-1] == pytest.approx(sum(won) + 1 / (len(won) + 1))
    assert won[evidence.begin[-1] // 30] == pytest.approx(max(won))


@given(st.lists(st.booleans(), max_size=80), st.sampled_from([0.05, 0.3]))
def test_bounds_contain_mean_and_shrink_with_level(hits: list[bool], level: float) -> None:
    values = np.array(hits, dtype=float)
    low, high = confidence_sequence(values, level)
    assert 0.0 <= low <= high <= 1.0
    if len(values):
        assert low <= values.mean() <= high
        wider = confidence_sequence(values, level / 10)
        assert wider[0] <= low
        assert high <= wider[1]


def test_bounds_hold_for_drifting_mean() -> None:
    rng = np.random.default_rng(11)
    chance = np.linspace(0.1, 0.5, 200)
    missed = 0
    for _ in range(200):
        low, high = confidence_sequence((rng.random(200) < chance).astype(float), 0.1)
        missed += not low <= chance.mean() <= high
    assert missed <= 20
