from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from forewarn.evaluation.prediction.risk_tests import (
    hoeffding_bentkus,
    longest_held,
    running_bounds,
    shortfall_evidence,
    worst_stretch,
)


def test_the_p_value_by_hand() -> None:
    # No loss in 10 at a limit of 0.5: exp(-10 log 2) = 1/1024; Bentkus has e / 1024.
    assert hoeffding_bentkus(0.0, 10, 0.5) == pytest.approx(1 / 1024)
    # Where Bentkus is the smaller: e P(Bin(20, 0.1) <= 1).
    assert hoeffding_bentkus(0.05, 20, 0.1) == pytest.approx(
        min(
            math.e * binom.cdf(1, 20, 0.1),
            math.exp(-20 * (0.05 * math.log(0.5) + 0.95 * math.log(0.95 / 0.9))),
        ),
    )
    assert hoeffding_bentkus(0.3, 50, 0.2) == 1.0
    assert hoeffding_bentkus(0.0, 0, 0.2) == 1.0


@given(st.integers(1, 60), st.floats(0.02, 0.98), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_p_value_is_valid_at_its_limit(n: int, limit: float, level: float) -> None:
    losses = np.arange(n + 1)
    small = [hoeffding_bentkus(k / n, n, limit) <= level for k in losses.tolist()]
    assert binom.pmf(losses, n, limit)[small].sum() <= level + 1e-9


def test_lengths_are_tested_from_the_shortest_up_to_the_first_that_is_not_sure() -> None:
    # 40 alerts in the first half of the list, all hits; 40 in the second, no hit.
    position = np.repeat([0.4, 0.9], 40)
    hit = position < 0.5
    least = np.full(80, 0.4)
    held = longest_held(position, hit, least, lengths=(0.5, 1.0), level=0.05)
    assert held == 0.5  # the whole list has 50 %, which is not above 40 % for certain
    assert longest_held(position, hit, least / 2, lengths=(0.5, 1.0), level=0.05) == 1.0
    assert longest_held(position, ~hit, least / 9, lengths=(0.5, 1.0), level=0.05) == 0.0
    assert longest_held(position, hit, least, lengths=(0.2, 1.0), level=0.05) == 0.0


def test_the_chance_to_hold_a_length_that_falls_short_is_at_most_the_level() -> None:
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(300):
        position = rng.random(90)
        hit = rng.random(90) < np.where(position <= 1 / 3, 0.45, 0.29)
        held = longest_held(position, hit, np.full(90, 0.3), lengths=(1 / 3, 1.0), level=0.1)
        wrong += held == 1.0 and (0.45 + 2 * 0.29) / 3 < 0.3
    assert wrong <= 30


@pytest.mark.parametrize("weighted", [False, True])
def test_a_kept_promise_is_hardly_ever_called_broken(weighted: bool) -> None:
    rng = np.random.default_rng(5)
    called = 0
    for _ in range(200):
        promised = rng.beta(1, 5, 300)
        hit = rng.random(300) < promised
        weight = rng.choice([1.0, 0.25], 300) if weighted else None
        called += bool((shortfall_evidence(promised, hit, weight) >= 20).any())
    assert called <= 10  # 5 %


def test_a_promise_that_breaks_after_a_long_good_past_is_noticed() -> None:
    rng = np.random.default_rng(7)
    delays = []
    for _ in range(20):
        chance = np.concatenate([np.full(300, 0.4), np.full(200, 0.1)])
        evidence = shortfall_evidence(np.full(500, 0.4), rng.random(500) < chance)
        strong = np.flatnonzero(evidence >= 20)
        delays.append(strong[0] - 300 if len(strong) else np.inf)
    assert np.median(delays) < 90


def test_evidence_of_two_alerts_by_hand() -> None:
    # At even odds a bet b makes 1 + b of 1 where nothing fails, and 1 - b where a GPU does.
    promised = np.array([0.5, 0.5])
    evidence = shortfall_evidence(promised, np.array([False, True]))
    assert evidence[0] == pytest.approx(0.5 * 1.5 + 0.5)  # half of the level waits
    won = np.mean([(1 + b) * (1 - b) for b in (0.1, 0.3, 0.5, 0.7, 0.9)])
    assert evidence[1] == pytest.approx(0.5 * won + 0.5)
    weighted = shortfall_evidence(promised, np.array([False, True]), np.array([0.5, 1.0]))
    assert weighted[0] == pytest.approx(0.5 * 1.25 + 0.5)


def test_the_worst_stretch_is_where_the_precision_fell() -> None:
    hit = np.array([True, False] * 100 + [False] * 60)
    assert worst_stretch(np.full(260, 0.4), hit) == 210  # the first begin after the 200th
    assert worst_stretch(np.full(30, 0.4), hit[:30]) == 0


@given(st.lists(st.booleans(), max_size=80), st.sampled_from([0.05, 0.3]))
def test_bounds_enclose_the_mean_and_narrow_with_a_wider_level(
    hits: list[bool], level: float
) -> None:
    values = np.array(hits, dtype=float)
    low, high = running_bounds(values, level)
    assert 0.0 <= low <= high <= 1.0
    if len(values):
        assert low <= values.mean() <= high
        wider = running_bounds(values, level / 10)
        assert wider[0] <= low
        assert high <= wider[1]


def test_bounds_hold_for_a_mean_that_drifts() -> None:
    rng = np.random.default_rng(11)
    chance = np.linspace(0.1, 0.5, 200)
    missed = 0
    for _ in range(200):
        low, high = running_bounds((rng.random(200) < chance).astype(float), 0.1)
        missed += not low <= chance.mean() <= high
    assert missed <= 20
