from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from forewarn.evaluation.prediction.metrics.backtest_metrics import strategy_metrics
from forewarn.evaluation.prediction.metrics.random_lists import RandomLists
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.features.array_types import Float64Array
from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.models.prediction.ensembles import Committee

START = pd.Timestamp("2025-03-01", tz="UTC")
NEVER = float("inf")
# GPU, hours of the instance and of the failure: one list of four GPUs, and one of two.
INSTANCES = [
    ("a", 23, 30),
    ("b", 23, NEVER),
    ("c", 23, 60),
    ("d", 23, NEVER),
    ("b", 47, NEVER),
    ("c", 47, 60),
]


def table_of(score: Float64Array, *, days: int = 1) -> ScoreTable:
    gpus, ends, failed = zip(*INSTANCES, strict=True)
    hours = np.array(failed) - np.array(ends)
    hours = np.where(hours <= 24 * days, hours, NEVER)
    frame = pd.DataFrame(
        {
            "test_window": START,
            "gpu_serial": np.array(gpus, dtype=object),
            "window_end": START + pd.to_timedelta(np.array(ends), unit="h"),
            "label": np.isfinite(hours).astype("int8"),
            "sampled": True,
            "train_length_days": 9.0,
            "hours_to_failure": hours,
            "score_random": score,
        }
    )
    committee = Committee(parallel=("random",), cascade=(("random", 0.5),))
    step, horizon = Nanoseconds(24 * HOUR), Nanoseconds(days * DAY)
    rules = EvaluationProtocol(committee, 0.5, 0.5, 0.5, step, horizon, 0)
    return ScoreTable(frame, rules)


@pytest.mark.parametrize("seed", range(3))
def test_expectation_does_not_depend_on_draw(seed: int) -> None:
    score = np.random.default_rng(seed).random(len(INSTANCES))
    fleet = strategy_metrics(table_of(score)).fleet["random"]
    # Two of four GPUs are listed, of which one in four fails; then one of two, and one in two.
    assert [(day.listed, day.hits) for day in fleet.days] == [(2, 0.5), (1, 0.5)]
    assert fleet.list_precision == pytest.approx(1 / 3)
    # Both failures are on one list each, with a probability of one half.
    assert fleet.failures_caught == pytest.approx(1.0)
    assert fleet.failures == 2
    assert fleet.failures_caught_share == pytest.approx(0.5)
    assert fleet.alerts == pytest.approx(3.0)
    assert fleet.alerts_per_failure_caught == pytest.approx(3.0)
    low, high = fleet.list_precision_interval or (NEVER, NEVER)
    assert low <= 1 / 3 <= high


def test_active_alert_raises_no_other() -> None:
    lists = RandomLists.from_table(table_of(np.zeros(len(INSTANCES)), days=2))
    # b and c raise on the second day only if they were not listed on the first.
    assert lists.alerts.tolist() == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25]
    # c fails within two days of both lists: 0.5 + 0.25. a is on the first only.
    assert lists.caught == pytest.approx(0.5 + 0.75)


def test_mean_of_drawn_lists_is_expectation() -> None:
    rng, hits = np.random.default_rng(0), []
    for _ in range(300):
        table = table_of(rng.random(len(INSTANCES)))
        hits.append(int((table.labels[table.days.row[table.listed("random")]] == 1).sum()))
    assert np.mean(hits) == pytest.approx(1.0, abs=0.12)
