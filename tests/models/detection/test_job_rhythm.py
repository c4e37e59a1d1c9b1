"""A job that works in steps longer than a window: whole steps are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.models.detection.test_detector import USUAL, Floats, named, task

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.detection.sampling import Sampling
from forewarn.features.time_units import SECOND
from forewarn.models.detection.detection_rules import DetectionRules, paused_windows
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.threshold import Threshold
from forewarn.pipelines.studies.detection_study import StudySet

RULES = DetectionRules(window=8, continuity=240, block=60)


def detector(*, with_rhythm: bool = True) -> Detector:
    rules = RULES if with_rhythm else replace(RULES, period=1)
    low = Threshold(base=float(np.log(2.0)), slope=0.0, margin=0.0, tail=0.2)
    models = [MetricModel((MetricLimits("one", 0.0, 1.0),), None, USUAL, low)]
    return Detector(rules, models)


def stepping(period: int, longer: int, seed: int = 0) -> dict[str, Floats]:
    """Return machines that are busy for half of each step; from tick 400, number 2 longer."""
    generator = np.random.default_rng(seed)
    ticks = np.arange(900)
    busy = np.tile((ticks % period < period // 2).astype(np.float32), (6, 1))
    late = (ticks % period < period // 2 + longer) & (ticks >= 400)
    busy[2, late] = 1.0
    return {"one": (0.8 * busy + generator.normal(0, 0.01, (6, 900))).astype(np.float32)}


@pytest.mark.parametrize(("period", "longer"), [(20, 3), (30, 4), (60, 8), (100, 12)])
def test_longer_busy_part_of_each_step_is_found(period: int, longer: int) -> None:
    series = task(stepping(period, longer))
    assert named(detector(with_rhythm=False).find(series)[0]) == []
    (finding,) = detector().find(series)[0].findings
    assert finding.machine == 2
    assert abs(finding.since - 400) <= period


@pytest.mark.parametrize("period", [20, 60, 100])
def test_steps_alone_are_no_fault(period: int) -> None:
    verdict, _ = detector().find(task(stepping(period, 0)))
    assert not verdict.findings
    assert not verdict.jitters


def test_waiting_within_each_step_is_no_pause() -> None:
    series = stepping(100, 0)["one"]
    assert paused_windows(series, 900, RULES).any()
    assert not paused_windows(series, 900, RULES.with_period(100)).any()
    series[:, 300:450] = 0.0
    assert paused_windows(series, 900, RULES.with_period(100)).any()


def test_stream_with_changing_rhythm_rescores() -> None:
    """Scores of windows of another length are not reused."""
    plain = {"one": np.random.default_rng(1).normal(0.4, 0.01, (6, 900)).astype(np.float32)}
    _, baselines = detector().find(task(plain), incremental=True)
    stepped = stepping(20, 3)
    again, _ = detector().find(task(stepped), baselines, incremental=True)
    assert named(again) == [2]


def test_study_scores_the_windows_that_verdicts_use(tmp_path: Path) -> None:
    """The strongest score of a study is that of the verdict, also for a job with a rhythm."""
    samples = stepping(20, 3)["one"]
    times = pd.Timestamp("2026-11-01") + pd.to_timedelta(np.arange(900), "s")
    rows = [
        pd.DataFrame({"timestamp": times, "machine": f"m{i}", "one": samples[i]}) for i in range(6)
    ]
    (tmp_path / "pulls" / "task=slow").mkdir(parents=True)
    pd.concat(rows).to_parquet(tmp_path / "pulls" / "task=slow" / "part-0.parquet")
    truth = "task,machine,fault,start_s,machines\nslow,m2,busy,400,6\n"
    (tmp_path / "truth.csv").write_text(truth, encoding="utf-8")
    study = StudySet.open(tmp_path, SECOND, Sampling())
    (pull,) = study.pulls()
    verdict, _ = detector().find(pull.task())
    ((machine, share),) = study.strongest(detector(), pull)
    assert machine == "m2"
    assert share == pytest.approx(verdict.findings[0].score)
