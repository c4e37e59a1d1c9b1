"""Scores evaluated file by file give the same results as the whole table."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.evaluation.prediction.metrics.backtest_metrics import strategy_metrics
from forewarn.evaluation.prediction.metrics.list_calibration import list_calibration
from forewarn.evaluation.prediction.metrics.net_benefit import list_benefit
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.models.prediction.ensembles import Committee
from forewarn.pipelines.backtest.evaluated_scores import EvaluatedScores
from forewarn.pipelines.runtime.executor import Executor

START = pd.Timestamp("2025-03-01T18:00", tz="UTC")  # so that a list spans two windows
N_GPUS, N_WINDOWS, SPAN = 29, 3, 48
PRICES = ActionCosts(100.0, 0.5, (("avoid", 1.0), ("drain", 10.0)))


def protocol(step_hours: int) -> EvaluationProtocol:
    committee = Committee(("a", "b"), (("a", 0.5), ("b", 0.2)))
    step, horizon = Nanoseconds(step_hours * HOUR), DAY
    return EvaluationProtocol(committee, 0.2, 0.7, 0.1, step, horizon, 0)


def windows(step_hours: int) -> list[pd.DataFrame]:
    """Return the scores of three test windows; some GPUs fail, and one is never on a list."""
    source = np.random.default_rng(step_hours)
    fails = np.where(source.random(N_GPUS) < 0.3, source.uniform(20, 140, N_GPUS), np.inf)
    frames = []
    for number in range(N_WINDOWS):
        gpu, hour = (part.ravel() for part in np.meshgrid(
            np.arange(N_GPUS), np.arange(number * SPAN, (number + 1) * SPAN, step_hours)
        ))  # fmt: skip
        # The last GPU has one instance, at one o'clock on a separate machine.
        seen = ((gpu < N_GPUS - 1) | (hour == 7)) & (hour <= fails[gpu])
        gpu, hour = gpu[seen], hour[seen]
        ahead = fails[gpu] - hour
        label = (ahead <= 24).astype(np.int8)
        healthy = source.permutation(np.flatnonzero((label == 0) & (gpu < N_GPUS - 1)))
        sampled = label == 1
        sampled[healthy[: 8 * int(label.sum())]] = True
        scores = source.choice([0.1, 0.2, 0.4, 0.6, 0.9], (3, len(gpu)))
        frames.append(
            pd.DataFrame(
                {
                    "test_window": START + pd.Timedelta(hours=number * SPAN),
                    "gpu_serial": [f"S{(7 * n) % N_GPUS:02}" for n in gpu],
                    "machine_id": [f"m{n // 4}" for n in gpu],
                    "window_end": START + pd.to_timedelta(hour, unit="h"),
                    "label": label,
                    "sampled": sampled,
                    "train_length_days": 9.0,
                    "hours_to_failure": np.where(label == 1, ahead, np.inf),
                    "score_a": scores[0],
                    "score_b": scores[1],
                    "score_blend": scores[2],
                    "probability": source.random(len(gpu)),
                    "calibrated": number > 0,
                    "flag_parallel": False,
                }
            )
        )
    return frames


def write(frames: list[pd.DataFrame], folder: Path) -> list[Path]:
    paths = [folder / f"{number}.parquet" for number in range(len(frames))]
    for frame, path in zip(frames, paths, strict=True):
        frame.to_parquet(path)
    return paths


def figures(table: ScoreTable, scores: EvaluatedScores | None = None) -> dict[str, Any]:
    of_all = () if scores is None else (scores.averages, scores.judged, scores.without)
    report = asdict(strategy_metrics(table, *of_all))
    monitored = list_calibration(table, PRICES)
    assert monitored is not None
    return report | {"worth": list_benefit(table, PRICES), "promise": asdict(monitored.metrics())}


def judged(paths: list[Path], step_hours: int) -> dict[str, Any]:
    unseen_from = int((START + pd.Timedelta(hours=130)).value)
    with Executor("threads", 2).started() as slices:
        scores = EvaluatedScores.from_files(paths, protocol(step_hours), unseen_from, slices)
    assert len(scores.table.frame) < 0.9 * sum(len(pd.read_parquet(path)) for path in paths)
    return figures(scores.table, scores)


@pytest.mark.parametrize("step_hours", [2, 3])
def test_file_by_file_evaluation_equals_whole(step_hours: int, tmp_path: Path) -> None:
    frames = windows(step_hours)
    unseen_from = int((START + pd.Timedelta(hours=130)).value)
    table = ScoreTable(pd.concat(frames, ignore_index=True), protocol(step_hours), unseen_from)
    whole, parts = figures(table), judged(write(frames, tmp_path), step_hours)
    np.testing.assert_equal(parts.pop("draws"), whole.pop("draws"))
    calibration = [report.pop("calibration") for report in (whole, parts)]
    assert parts == whole
    assert whole["fleet"]["blend"]["alerts"] > 0
    assert whole["fleet"]["a"]["average_precision_interval"] is not None
    for name in ("slope", "intercept"):  # sums of parts differ in the last digits
        assert calibration[0][name] == pytest.approx(calibration[1][name], abs=1e-6)
    # Fewer than ten machines fail, too few for a bootstrap over machines.
    assert [part["slope_interval"] for part in calibration] == [None, None]
    for one, other in zip(*(part["bins"] for part in calibration), strict=True):
        assert one == pytest.approx(other, rel=1e-12)


def test_reduced_table_has_same_lists() -> None:
    table = ScoreTable(pd.concat(windows(3), ignore_index=True), protocol(3))
    rows = table.evaluated_rows
    names = pd.CategoricalDtype(sorted(table.frame["machine_id"].unique()), ordered=True)
    serials = pd.CategoricalDtype(sorted(table.frame["gpu_serial"].unique()), ordered=True)
    frame = table.frame.astype({"machine_id": names, "gpu_serial": serials})
    few = replace(table, frame=frame.iloc[rows])
    assert "m7" not in set(few.frame["machine_id"])
    np.testing.assert_array_equal(rows[few.days.row], table.days.row)
    np.testing.assert_array_equal(few.draws, table.draws)
    assert few.failures == table.failures
