"""The promise of lists through a backtest, on a table small enough to count by hand."""

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


def follow(n_days: int, hits: dict[int, str], **columns: Any) -> ListCalibration:
    """Four GPUs a day, seen an hour before midnight; the first two are listed."""
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
    promise = list_calibration(
        ScoreTable(frame, EvaluationProtocol(committee, 0.5, 0.7, 0.5, *spans, 0), None), None
    )
    assert promise is not None
    return promise


def test_the_listed_alerts_are_judged_where_probabilities_are_fitted() -> None:
    promise = follow(3, {1: "a"}).promise
    assert (promise.state, promise.judged, promise.hits) == (CalibrationState.UNKNOWN, 6, 1)
    assert promise.promised == pytest.approx(0.85)
    assert follow(3, {1: "a"}, calibrated=False).promise.judged == 0


def test_flags_stop_with_the_list_that_knows_of_the_break_and_not_before() -> None:
    report = follow(40, {35: "a"}).metrics()
    # The 60th alert stands on the list of the 30th day, 2025-03-31, and is judged a day later.
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


def test_flags_come_back_when_sixty_further_alerts_kept_what_they_promised() -> None:
    report = follow(70, dict.fromkeys(range(31, 70), "ab")).metrics()
    broken, returned = report.changes
    assert (returned.judged, returned.length, returned.hits) == (120, 1.0, 58)
    flagged = [day.flagged for day in report.days]
    assert flagged == [2] * 30 + [0] * 30 + [2] * 10
    assert [report.days[30].date, report.days[60].date] == [*(broken.date, returned.date)]
