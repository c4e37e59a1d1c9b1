from __future__ import annotations

import numpy as np
import pytest

from forewarn.evaluation.prediction.metrics.calibration_monitor import (
    CalibrationState,
    LabelledAlerts,
    monitor_calibration,
)
from forewarn.features.array_types import Float64Array


def test_state_is_unknown_below_sixty_alerts() -> None:
    monitored = monitor_calibration(LabelledAlerts.from_sequences([0.9] * 59, [False] * 59))
    assert (monitored.state, monitored.length) == (CalibrationState.UNKNOWN, 1.0)
    assert (monitored.judged, monitored.hits, monitored.precision) == (59, 0, 0.0)
    assert monitored.predicted == pytest.approx(0.9)


def test_no_alerts() -> None:
    monitored = monitor_calibration(LabelledAlerts.from_sequences([], []))
    assert monitored.state == CalibrationState.UNKNOWN
    assert monitored.precision is None


def test_miscalibration_needs_sixty_alerts() -> None:
    monitored = monitor_calibration(LabelledAlerts.from_sequences([0.9] * 60, [False] * 60))
    assert monitored.state == CalibrationState.BROKEN
    assert monitored.broken_at == (59,)
    assert monitored.length == 0.0
    assert monitored.judged == 0  # later alerts count for the recovery
    assert (monitored.length_after(59), monitored.length_after(60)) == (1.0, 0.0)


def test_ranking_recovers() -> None:
    bad, good = [False] * 60, [True, False] * 60
    predicted = [0.9] * 60 + [0.5] * 120
    monitored = monitor_calibration(LabelledAlerts.from_sequences(predicted, bad + good))
    assert monitored.state == CalibrationState.HOLDS
    assert monitored.length == 1.0
    assert monitored.broken_at == (59,)
    broken, recovered = monitored.changes
    assert (broken.judged, broken.length, broken.alerts, broken.hits) == (60, 0.0, 60, 0)
    assert broken.expected == pytest.approx(54)
    assert (recovered.judged, recovered.length, recovered.alerts, recovered.hits) == (
        120,
        1.0,
        60,
        30,
    )
    again = monitor_calibration(
        LabelledAlerts.from_sequences(predicted + [0.9] * 120, bad + good + [False] * 120)
    )
    assert again.state == CalibrationState.BROKEN
    assert len(again.broken_at) == 2


def test_only_good_head_of_list_recovers() -> None:
    # After the alarm 24 of 120 were expected to fail; 20 did, all in the first third of the lists.
    position = np.concatenate([np.ones(60), np.tile([0.3, 0.3, 1, 1, 1, 1], 20)])
    hit = np.concatenate([np.zeros(60), np.tile([1, 0, 0, 0, 0, 0], 20)]).astype(bool)
    predicted = np.repeat([0.9, 0.2], [60, 120])
    monitored = monitor_calibration(LabelledAlerts.from_sequences(predicted, hit, position))
    recovered = monitored.changes[-1]
    assert monitored.length == pytest.approx(2 / 3)
    # The first alert of the list after the 60th decides; alerts at lower ranks do not count.
    assert (recovered.judged, recovered.alerts, recovered.hits) == (121, 21, 11)
    assert recovered.expected == pytest.approx(4.2)


def alerts_until_recovery(ratio: Float64Array, seed: int) -> int | None:
    """Return the number of alerts, in lists of ten, until a miscalibrated ranking recovers."""
    rng = np.random.default_rng(seed)
    predicted = -np.sort(-rng.beta(1, 9, (len(ratio) // 10, 10)), axis=1).ravel()
    hit = rng.random(len(ratio)) < ratio * predicted
    position = np.tile(np.arange(1, 11) / 10, len(ratio) // 10)
    changes = monitor_calibration(
        LabelledAlerts.from_sequences(predicted, hit, position), length=0.0
    ).changes
    return changes[0].judged if changes else None


def test_half_precision_rarely_recovers() -> None:
    recovered = [alerts_until_recovery(np.full(600, 0.5), seed) for seed in range(200)]
    assert sum(judged is not None for judged in recovered) <= 10  # 5 %


def test_bad_period_delays_recovery_only_slightly() -> None:
    late = [alerts_until_recovery(np.repeat([0.1, 1.0], [600, 900]), seed) for seed in range(20)]
    assert None not in late
    assert 600 < np.median([judged for judged in late if judged]) < 1000


def test_calibrated_list_recovers_soon() -> None:
    recovered = [alerts_until_recovery(np.ones(400), seed) for seed in range(20)]
    assert np.median([judged or 400 for judged in recovered]) < 200


def test_frequently_kept_alerts_weigh_less() -> None:
    # 1 in 4 of the randomly exempted GPUs does not fail; all others do.
    hit = [False, True] * 100
    equal = monitor_calibration(LabelledAlerts.from_sequences([0.2] * 200, hit))
    weighted = monitor_calibration(
        LabelledAlerts.from_sequences([0.2] * 200, hit, weight=[1.0, 0.25] * 100)
    )
    assert equal.precision == pytest.approx(0.5)
    assert weighted.precision == pytest.approx(0.2)
    assert weighted.bounds[1] < equal.bounds[1]


@pytest.mark.parametrize("drift", [1.0, 0.8])
def test_tolerated_shortfall_rarely_alarms(drift: float) -> None:
    rng = np.random.default_rng(1)
    broken = 0
    for _ in range(100):
        predicted = rng.beta(1, 4, 200)
        hit = rng.random(200) < drift * predicted
        broken += bool(monitor_calibration(LabelledAlerts.from_sequences(predicted, hit)).broken_at)
    assert broken <= 5


def test_drift_to_third_is_detected() -> None:
    rng = np.random.default_rng(2)
    broken = 0
    for _ in range(30):
        chance = np.where(np.arange(400) < 100, 0.4, 0.4 / 3)
        monitored = monitor_calibration(
            LabelledAlerts.from_sequences(np.full(400, 0.4), rng.random(400) < chance)
        )
        broken += monitored.state == CalibrationState.BROKEN
    assert broken >= 25


def test_alarm_reports_block_with_shortfall() -> None:
    alerts = LabelledAlerts.from_sequences([0.4] * 400, [True, False] * 100 + [False] * 200)
    (broken,) = monitor_calibration(alerts).changes
    assert (broken.alerts, broken.hits) == (broken.judged - 210, 0)
