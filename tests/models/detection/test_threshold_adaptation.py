from __future__ import annotations

import numpy as np
import pytest

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.time_units import DAY
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.threshold import Threshold
from forewarn.models.detection.threshold_adaptation import (
    FIRST_HOUR,
    ThresholdAdaptation,
)

FITTED = Threshold(base=float(np.log(4.0)), slope=0.0, margin=0.0, tail=0.1)
DETECTOR = Detector(
    DetectionRules(), (MetricModel((MetricLimits("one"),), None, threshold=FITTED),)
)


def level(known: ThresholdAdaptation, task: str) -> float:
    (model,) = known.raised(DETECTOR, task).metrics
    assert model.threshold is not None
    return model.threshold.at(8)


def test_first_hour_raises_own_task_most() -> None:
    known = ThresholdAdaptation()
    known.watched("a", 0, FIRST_HOUR // 2)
    known.learn("a", {"one": 0.95})
    assert level(known, "a") == pytest.approx(4.0 * 1.5 * 0.95)
    assert level(known, "b") == pytest.approx(4.0 * 1.1 * 0.95)


def test_later_scores_count_for_site() -> None:
    known = ThresholdAdaptation()
    known.watched("a", 0, 2 * FIRST_HOUR)
    known.learn("a", {"one": 0.95})
    assert level(known, "a") == level(known, "b") == pytest.approx(4.0 * 1.1 * 0.95)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_thresholds_never_fall(share: float) -> None:
    known = ThresholdAdaptation()
    known.watched("a", 0, FIRST_HOUR // 2)
    known.learn("a", {"one": share})
    assert level(known, "a") == pytest.approx(4.0)


def test_raise_is_bounded() -> None:
    known = ThresholdAdaptation()
    known.watched("a", 0, FIRST_HOUR // 2)
    for _ in range(100):
        known.learn("a", {"one": 0.99})
    assert level(known, "a") == pytest.approx(12.0)


def test_overlapping_time_counts_once() -> None:
    known = ThresholdAdaptation()
    known.watched("a", 0, 900)
    known.watched("a", 480, 1380)
    assert known.days == pytest.approx(1380 / DAY)


def test_scores_are_shares_of_the_raised_threshold() -> None:
    known = ThresholdAdaptation()
    known.watched("a", 0, FIRST_HOUR // 2)
    known.learn("a", {"one": 0.8})
    assert level(known, "a") == pytest.approx(4.0 * 1.5 * 0.8)
    known.learn("a", {"one": 0.9})
    assert level(known, "a") == pytest.approx(4.0 * 1.5 * (1.5 * 0.8) * 0.9)
