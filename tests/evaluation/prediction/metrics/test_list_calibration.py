"""Calibration of lists in a backtest, on a table small enough to verify by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from forewarn.evaluation.prediction.metrics.calibration_monitor import CalibrationState
from forewarn.evaluation.prediction.metrics.list_calibration import (
    ListCalibration,
    list_calibration,
)
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.models.prediction.ensembles import Committee

START = pd.Timestamp("2025-03-01", tz="UTC")
CHANCE = {"a": 0.9, "b": 0.8, "c": 0.1, "d": 0.01}


def monitor_lists(n_days: int, hits: dict[int, str], **columns: Any) -> ListCalibration:
    """Return the calibration of lists of four GPUs seen at 23:00; the first two are listed."""
    rows = [(day, gpu, gpu in hits.get(day, "")) for day in range(n_days) for gpu in CHANCE]
    fails = np.array([hit for *_, hit in rows])
    chance = [CHANCE[gpu] for _, gpu, _ in rows]
    frame = pd.DataFrame(
        {
            "test_window": START,
            "gpu_serial": [gpu for _, gpu, _ in rows],
            "machine_id": [gpu for _, gpu, _ in rows],
            "window_end": [START + pd.Timedelta(hours=24 * day + 23) for day, *_ in rows],
            "label": fails.astype("int8"),
            "sampled": True,
            "train_length_days": 9.0,
            "hours_to_failure": np.where(fails, 13.0, np.inf),
            "score_blend": chance,
            "probability": chance,
        }
    ).assign(**columns)
    committee = Committee(("blend",), (("blend", 0.5),))
    spans = Nanoseconds(2 * HOUR), DAY
    monitored = list_calibration(
        ScoreTable(frame, EvaluationProtocol(committee, 0.5, 0.7, 0.5, *spans, 0), None), None
    )
    assert monitored is not None
    return monitored


def test_only_alerts_with_fitted_probabilities_count() -> None:
    monitored = monitor_lists(3, {1: "a"}).final
    assert (monitored.state, monitored.judged, monitored.hits) == (CalibrationState.UNKNOWN, 6, 1)
    assert monitored.predicted == pytest.approx(0.85)
    assert monitor_lists(3, {1: "a"}, calibrated=False).final.judged == 0


def test_flags_are_blocked_after_alarm_is_known() -> None:
    report = monitor_lists(40, {35: "a"}).metrics()
    # The 60th alert is on the list of the 30th day, 2025-03-31; its outcome is known a day later.
    (broken,) = report.changes
    assert (broken.date, broken.judged, broken.length) == ("2025-04-01", 60, 0.0)
    assert (broken.alerts, broken.hits) == (60, 0)
    flagged = {day.date: day.flagged for day in report.days}
    assert flagged["2025-03-31"] == 2
    assert flagged["2025-04-01"] == 0
    assert sum(flagged.values()) == 60
    (hit,) = [day for day in report.days if day.hits]
    assert (hit.alerts, hit.hits, hit.flagged_hits) == (2, 1, 0)
    assert hit.expected == pytest.approx(1.7)


def test_flags_return_after_sixty_calibrated_alerts() -> None:
    report = monitor_lists(70, dict.fromkeys(range(31, 70), "ab")).metrics()
    broken, returned = report.changes
    assert (returned.judged, returned.length, returned.hits) == (120, 1.0, 58)
    flagged = [day.flagged for day in report.days]
    assert flagged == [2] * 30 + [0] * 30 + [2] * 10
    assert [report.days[30].date, report.days[60].date] == [*(broken.date, returned.date)]
