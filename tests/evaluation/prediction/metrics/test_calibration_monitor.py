from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.prediction.metrics.calibration_monitor import (
    CalibrationState,
    LabelledAlerts,
    monitor_calibration,
)
from forewarn.features.array_types import Float64Array


def test_below_sixty_judged_alerts_nobody_can_tell() -> None:
    promise = monitor_calibration(LabelledAlerts.from_sequences([0.9] * 59, [False] * 59))
    assert (promise.state, promise.length) == (CalibrationState.UNKNOWN, 1.0)
    assert (promise.judged, promise.hits, promise.precision) == (59, 0, 0.0)
    assert promise.promised == pytest.approx(0.9)


def test_no_alert_at_all() -> None:
    promise = monitor_calibration(LabelledAlerts.from_sequences([], []))
    assert promise.state == CalibrationState.UNKNOWN
    assert promise.precision is None


def test_a_promise_breaks_with_the_sixtieth_alert_at_the_earliest() -> None:
    promise = monitor_calibration(LabelledAlerts.from_sequences([0.9] * 60, [False] * 60))
    assert promise.state == CalibrationState.BROKEN
    assert promise.broken_at == (59,)
    assert promise.length == 0.0
    assert promise.judged == 0  # what comes after is judged for its way back
    assert (promise.length_after(59), promise.length_after(60)) == (1.0, 0.0)


def test_a_ranking_earns_its_way_back() -> None:
    bad, good = [False] * 60, [True, False] * 60
    promised = [0.9] * 60 + [0.5] * 120
    promise = monitor_calibration(LabelledAlerts.from_sequences(promised, bad + good))
    assert promise.state == CalibrationState.HOLDS
    assert promise.length == 1.0
    assert promise.broken_at == (59,)
    broken, returned = promise.changes
    assert (broken.judged, broken.length, broken.alerts, broken.hits) == (60, 0.0, 60, 0)
    assert broken.expected == pytest.approx(54)
    assert (returned.judged, returned.length, returned.alerts, returned.hits) == (120, 1.0, 60, 30)
    again = monitor_calibration(
        LabelledAlerts.from_sequences(promised + [0.9] * 120, bad + good + [False] * 120)
    )
    assert again.state == CalibrationState.BROKEN
    assert len(again.broken_at) == 2


def test_where_the_end_of_the_list_is_bad_only_its_head_comes_back() -> None:
    # After the break 20 of 120 hit where 24 were promised, all of them in the first third.
    position = np.concatenate([np.ones(60), np.tile([0.3, 0.3, 1, 1, 1, 1], 20)])
    hit = np.concatenate([np.zeros(60), np.tile([1, 0, 0, 0, 0, 0], 20)]).astype(bool)
    promised = np.repeat([0.9, 0.2], [60, 120])
    promise = monitor_calibration(LabelledAlerts.from_sequences(promised, hit, position))
    returned = promise.changes[-1]
    assert promise.length == pytest.approx(2 / 3)
    # Decided by the first alert of the list after the 60th; alerts further down do not count.
    assert (returned.judged, returned.alerts, returned.hits) == (121, 21, 11)
    assert returned.expected == pytest.approx(4.2)


def broken_and_then(ratio: Float64Array, seed: int) -> int | None:
    """Return after how many alerts of lists of ten a broken promise is forgiven."""
    rng = np.random.default_rng(seed)
    promised = -np.sort(-rng.beta(1, 9, (len(ratio) // 10, 10)), axis=1).ravel()
    hit = rng.random(len(ratio)) < ratio * promised
    position = np.tile(np.arange(1, 11) / 10, len(ratio) // 10)
    changes = monitor_calibration(
        LabelledAlerts.from_sequences(promised, hit, position), length=0.0
    ).changes
    return changes[0].judged if changes else None


def test_at_half_of_what_it_promises_a_list_hardly_ever_comes_back() -> None:
    returned = [broken_and_then(np.full(600, 0.5), seed) for seed in range(200)]
    assert sum(judged is not None for judged in returned) <= 10  # 5 %


def test_a_bad_time_after_the_break_delays_the_return_by_little_more_than_itself() -> None:
    late = [broken_and_then(np.repeat([0.1, 1.0], [600, 900]), seed) for seed in range(20)]
    assert None not in late
    assert 600 < np.median([judged for judged in late if judged]) < 1000


def test_a_list_that_keeps_its_promise_soon_comes_back() -> None:
    returned = [broken_and_then(np.ones(400), seed) for seed in range(20)]
    assert np.median([judged or 400 for judged in returned]) < 200


def test_alerts_left_alone_more_often_weigh_less() -> None:
    # Of those that are left alone by chance 1 in 4 hits nothing; the others always hit.
    hit = [False, True] * 100
    equal = monitor_calibration(LabelledAlerts.from_sequences([0.2] * 200, hit))
    weighted = monitor_calibration(
        LabelledAlerts.from_sequences([0.2] * 200, hit, weight=[1.0, 0.25] * 100)
    )
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
        broken += bool(monitor_calibration(LabelledAlerts.from_sequences(promised, hit)).broken_at)
    assert broken <= 5


def test_a_drift_to_a_third_is_detected() -> None:
    rng = np.random.default_rng(2)
    broken = 0
    for _ in range(30):
        chance = np.where(np.arange(400) < 100, 0.4, 0.4 / 3)
        promise = monitor_calibration(
            LabelledAlerts.from_sequences(np.full(400, 0.4), rng.random(400) < chance)
        )
        broken += promise.state == CalibrationState.BROKEN
    assert broken >= 25


def test_a_break_names_the_alerts_that_fell_short_and_not_the_good_ones_before() -> None:
    alerts = LabelledAlerts.from_sequences([0.4] * 400, [True, False] * 100 + [False] * 200)
    (broken,) = monitor_calibration(alerts).changes
    assert (broken.alerts, broken.hits) == (broken.judged - 210, 0)
