"""`forewarn study prediction` on the command line, with a tiny fleet and only trees."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.evaluation.prediction.metrics.paper_protocol import paper_protocol
from forewarn.evaluation.prediction.metrics.score_table import (
    ENSEMBLES,
    EvaluationProtocol,
    ScoreTable,
)
from forewarn.features.time_units import DAY, MINUTE, Nanoseconds
from forewarn.models.prediction.ensembles import Committee
from forewarn.pipelines.backtest.backtest_run import run_backtest
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.studies.paper_figures import paper_figures
from forewarn.pipelines.studies.prediction_study import best_in_hindsight
from forewarn.pipelines.studies.prediction_text import prediction_text

GPUS, DAYS, SEED = 160, 11, 2
CONFIG = """
[features]
categorical = ["gpu_type"]
float = ["temperature_gpu", "power_draw"]
counter = ["ecc_corrected", "ecc_uncorrected", "rows_remapped", "pcie_replays"]
code = ["xid"]
history = []
residuals = []
peers = []
[training]
retrain_every = "2d"
lengths = ["2d", "3d"]
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "c.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def written(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "out"
    options = ["--gpus", str(GPUS), "--days", str(DAYS), "--seeds", str(SEED), "--models", "gbdt"]
    command = ["study", "prediction", *options, "--config", str(config), "--out", str(out)]
    assert main(command) == 0
    return out


@pytest.fixture
def study(written: Path) -> dict[str, Any]:
    study: dict[str, Any] = json.loads((written / "study.json").read_text())
    return study


def test_strategies_match_backtest(study: dict[str, Any], config: Path, tmp_path: Path) -> None:
    simulate_fleet_to(tmp_path, n_gpus=GPUS, n_days=DAYS, seed=SEED, progress=False)
    job = open_job(tmp_path / "records", load_settings(config), ("gbdt",))
    strategies = ("fixed", "sliding", "variable")
    report = run_backtest(job, tmp_path / "out", strategies=strategies).methods
    figures = study["strategies"]["all days"]
    for strategy in strategies:
        for method in ("gbdt", "cascade", "rules", "logistic"):
            expected = report[f"{method}_{strategy}"]
            figure = figures[strategy][method]
            assert figure["precision"] == expected.precision_at_k
            assert tuple(figure["interval"]) == expected.precision_at_k_interval
            assert figure["variance"] == expected.precision_variance
            assert figure["windows"] == len(expected.windows) >= 2


def scored(hits: dict[str, list[int]]) -> ScoreTable:
    """Return two windows of 9 instances, one of which fails and one is flagged.

    `hits` gives, by model, the windows in which the failing instance has the highest score.
    """
    start = pd.Timestamp("2025-01-01", tz="UTC")
    starts = [start + pd.Timedelta(days=3 * number) for number in (0, 1)]
    windows = [moment for moment in starts for _ in range(9)]
    frame = pd.DataFrame(
        {
            "test_window": windows,
            "gpu_serial": [f"0/g{number}" for number in range(9)] * 2,
            "machine_id": [f"0/m{number}" for number in range(9)] * 2,
            "window_end": windows,
            "label": [1, *[0] * 8] * 2,
            "sampled": True,
            "train_length_days": 3.0,
        }
    )
    for name, in_windows in hits.items():
        best = [0 if number in in_windows else 1 for number in (0, 1)]
        frame[f"score_{name}"] = [float(row == best[n]) for n in (0, 1) for row in range(9)]
    frame["score_cascade_first"] = frame["score_gbdt"]
    protocol = open_protocol()
    return ScoreTable(frame, protocol)


def open_protocol() -> EvaluationProtocol:
    committee = Committee.from_models(("gbdt",), ("gbdt",), (("gbdt", 0.05),), 0.0)
    step, horizon = Nanoseconds(100 * MINUTE), DAY
    return EvaluationProtocol(committee, 0.02, 0.7, 0.003, step, horizon, 0)


def test_hindsight_uses_best_length_per_window() -> None:
    # Length 2 is right in the second window, length 3 in the first: choosing by the past is right
    # half the time.
    spans = {2.0: scored({"gbdt": [1]}), 3.0: scored({"gbdt": [0]})}
    best = best_in_hindsight(spans, "gbdt")
    assert paper_protocol(best, "gbdt").precision_at_k == 1.0
    for table in spans.values():
        assert paper_protocol(table, "gbdt").precision_at_k == 0.5
    assert len(best.frame) == 18
    neither = {2.0: scored({"gbdt": []}), 3.0: scored({"gbdt": [0]})}
    assert paper_protocol(best_in_hindsight(neither, "gbdt"), "gbdt").precision_at_k == 0.5


def test_schedules_share_test_sets(study: dict[str, Any]) -> None:
    assert list(study["retraining"]) == ["1", "3", "5", "7", "9"]
    rules = [of["rules"] for of in study["retraining"].values()]
    # Rules are not trained: their flags do not depend on the training time.
    assert [figure["precision"] for figure in rules] == [rules[0]["precision"]] * 5
    assert len({figure["windows"] for figure in rules}) == 1
    assert len(study["by_day"]["gbdt"]) == 6
    methods = {"gbdt", "linear", "rules", *ENSEMBLES}
    assert set(study["strategies"]["all days"]["hindsight"]) == methods


def test_tables_are_written_and_printed(study: dict[str, Any], written: Path) -> None:
    with (written / "study.csv").open() as file:
        rows = list(csv.DictReader(file))
    tables = {row["table"] for row in rows}
    assert {"strategy, all days", "length in days", "day after training"} <= tables
    (fixed,) = (
        row
        for row in rows
        if (row["table"], row["row"], row["method"]) == ("strategy, all days", "fixed", "gbdt")
    )
    figure = study["strategies"]["all days"]["fixed"]["gbdt"]
    assert float(fixed["precision"]) == pytest.approx(figure["precision"], abs=1e-6)
    assert (written / "study.png").read_bytes().startswith(b"\x89PNG")
    text = prediction_text(study)
    assert f"{figure['precision']:.3f}" in text
    assert "a random score has 0.111" in text
    assert "mean of days 1 to 6" in text


def test_figures_of_paper_are_next_to_those_of_study() -> None:
    # On the first day both failing instances are flagged, on the second day one of two.
    days = [scored({"gbdt": [0, 1]}), scored({"gbdt": [0]})]
    sliding = {"parallel": {"precision": 0.25, "interval": None, "variance": 0.04}}
    of_month: dict[str, Any] = {"fixed": {}, "hindsight": {}, "sliding": sliding}
    strategies = {"first 30 days": of_month, "all days": {"hindsight": {}}}
    figures = paper_figures(strategies, days)
    assert [(f["figure"], f["method"], f["paper"], f["here"]) for f in figures] == [
        ("sliding, first 30 days", "parallel", 0.8, 0.25),
        ("mean of days 1 to 2", "gbdt", 0.579, 0.75),
        ("fall from day 1 to day 2", "gbdt", "0.286 to 0.430", 0.5),
        ("variance between windows, sliding", "parallel", 0.009, 0.04),
    ]


def test_too_few_days_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--gpus", "8", "--days", "3", "--models", "gbdt", "--out", str(tmp_path / "out")]
    assert main(["study", "prediction", *options]) == 2
    assert "`--gpus 8 --days 3`: no retraining is possible with seed 1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
