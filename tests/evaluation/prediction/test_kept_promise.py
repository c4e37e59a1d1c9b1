from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.prediction.kept_promise import (
    JudgedAlerts,
    PromiseState,
    judge_promise,
)


def test_below_sixty_judged_alerts_nobody_can_tell() -> None:
    promise = judge_promise(JudgedAlerts.of([0.9] * 59, [False] * 59))
    assert (promise.state, promise.length) == (PromiseState.UNKNOWN, 1.0)
    assert (promise.judged, promise.hits, promise.precision) == (59, 0, 0.0)
    assert promise.promised == pytest.approx(0.9)


def test_no_alert_at_all() -> None:
    promise = judge_promise(JudgedAlerts.of([], []))
    assert promise.state == PromiseState.UNKNOWN
    assert promise.precision is None


def test_a_promise_breaks_with_the_sixtieth_alert_at_the_earliest() -> None:
    promise = judge_promise(JudgedAlerts.of([0.9] * 60, [False] * 60))
    assert promise.state == PromiseState.BROKEN
    assert promise.broken_at == (59,)
    assert promise.length == 0.0
    assert promise.judged == 0  # what comes after is judged for its way back
    assert (promise.length_after(59), promise.length_after(60)) == (1.0, 0.0)


def test_a_ranking_earns_its_way_back() -> None:
    bad, good = [False] * 60, [True, False] * 60
    promised = [0.9] * 60 + [0.5] * 120
    promise = judge_promise(JudgedAlerts.of(promised, bad + good))
    assert promise.state == PromiseState.HOLDS
    assert promise.length == 1.0
    assert promise.broken_at == (59,)
    broken, returned = promise.changes
    assert (broken.judged, broken.length, broken.alerts, broken.hits) == (60, 0.0, 60, 0)
    assert broken.expected == pytest.approx(54)
    assert (returned.judged, returned.length, returned.alerts, returned.hits) == (120, 1.0, 60, 30)
    again = judge_promise(JudgedAlerts.of(promised + [0.9] * 120, bad + good + [False] * 120))
    assert again.state == PromiseState.BROKEN
    assert len(again.broken_at) == 2


def test_where_the_end_of_the_list_is_bad_only_its_head_comes_back() -> None:
    # After the break 10 of 60 hit where 12 were promised, all of them in the first third.
    position = np.concatenate([np.ones(60), np.tile([0.3, 0.3, 1, 1, 1, 1], 10)])
    hit = np.concatenate([np.zeros(60), np.tile([1, 0, 0, 0, 0, 0], 10)]).astype(bool)
    promised = np.repeat([0.9, 0.2], 60)
    promise = judge_promise(JudgedAlerts.of(promised, hit, position))
    assert promise.length == pytest.approx(2 / 3)


def test_alerts_left_alone_more_often_weigh_less() -> None:
    # Of those that are left alone by chance 1 in 4 hits nothing; the others always hit.
    hit = [False, True] * 100
    equal = judge_promise(JudgedAlerts.of([0.2] * 200, hit))
    weighted = judge_promise(JudgedAlerts.of([0.2] * 200, hit, weight=[1.0, 0.25] * 100))
    assert equal.precision == pytest.approx(0.5)
    assert weighted.precision == pytest.approx(0.2)
    assert weighted.bounds[1] < equal.bounds[1]


@pytest.mark.parametrize("drift", [1.0, 0.8])
def test_on_a_steady_stream_within_tolerance_it_hardly_ever_breaks(drift: float) -> None:
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(100):
        promised = rng.beta(1, 4, 200)
        hit = rng.random(200) < drift * promised
        broken += bool(judge_promise(JudgedAlerts.of(promised, hit)).broken_at)
    assert broken <= 5


def test_a_drift_to_a_third_is_detected() -> None:
    rng = np.random.default_rng(2)
    broken = 0
    for _ in range(30):
        chance = np.where(np.arange(400) < 100, 0.4, 0.4 / 3)
        promise = judge_promise(JudgedAlerts.of(np.full(400, 0.4), rng.random(400) < chance))
        broken += promise.state == PromiseState.BROKEN
    assert broken >= 25


def test_a_break_names_the_alerts_that_fell_short_and_not_the_good_ones_before() -> None:
    alerts = JudgedAlerts.of([0.4] * 400, [True, False] * 100 + [False] * 200)
    (broken,) = judge_promise(alerts).changes
    assert (broken.alerts, broken.hits) == (broken.judged - 210, 0)
