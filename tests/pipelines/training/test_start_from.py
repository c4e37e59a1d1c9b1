"""`forewarn train --start-from`: models of another site join the committee."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.models.prediction.linear.log_odds import logit
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.training.train import trained_walk

Fleet = Callable[[int, int], pd.DataFrame]
Write = Callable[[pd.DataFrame, Path], Path]

SETTINGS = """
[records]
interval = "1h"
[windows]
length = 6
horizon = 24
step = 2
[features]
categorical = ["gpu_type"]
float = {floats}
counter = ["ecc_corrected"]
history = [4]
peers = []
residuals = []
[training]
retrain_every = "3d"
lengths = ["8d"]
[ensembles]
parallel = ["gbdt"]
cascade = [["gbdt", 0.2]]
linear = 0.5
"""
FLOATS = '["temperature_gpu", "power_draw"]'


@pytest.fixture(scope="module")
def site(fleet_of: Fleet, write: Write, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the options of a site, with a model of 12 days in its folder."""
    folder = tmp_path_factory.mktemp("start")
    records = write(fleet_of(30, 21), folder / "records")
    for name, floats in (("own", FLOATS), ("other", '["temperature_gpu"]')):
        (folder / f"{name}.toml").write_text(SETTINGS.format(floats=floats))
    given = ["--records", str(records), "--config", str(folder / "own.toml")]
    assert main(["train", *given, "--at", "2025-01-13", "--model", str(folder / "there")]) == 0
    return given


def _folder(site: list[str]) -> Path:
    return Path(site[1]).parent


def test_newest_window_is_used_for_calibration_only(site: list[str]) -> None:
    job = open_job(Path(site[1]), load_settings(Path(site[3])))
    walk, predictor, _ = trained_walk(job, parse_moment("2025-01-19"))
    # On the 19th, only the first two days of the window of the 16th have labels.
    days = ["2025-01-10T00:00:00Z", "2025-01-13T00:00:00Z", "2025-01-16T00:00:00Z"]
    assert predictor.facts.calibrated_on == tuple(days)
    assert [format_iso(window.start) for window in walk.windows] == days[:2]


def test_both_sites_vote_equally(
    site: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, model = str(_folder(site) / "there"), str(tmp_path / "model")
    started = ["--model", model, "--start-from", there]
    capsys.readouterr()
    assert main(["train", *site, "--at", "2025-01-19", *started]) == 0
    text = capsys.readouterr().err
    assert "what each adds to the others" in text
    for shown in ("GBDT 25 %", "Linear (strong prior) 25 %", "start_gbdt 50 %"):
        assert shown in text
    trained, donor = Predictor.load(Path(model)), Predictor.load(Path(there))
    assert trained.committee.start == ("start_gbdt",)
    assert trained.encoder.to_dict() == donor.encoder.to_dict()

    values = _values(trained)
    scores = trained.scores(values)
    assert np.array_equal(scores["start_gbdt"], donor.scores(values)["gbdt"])
    assert not np.array_equal(scores["start_gbdt"], scores["gbdt"])
    votes = {"gbdt": 0.25, "linear": 0.25, "start_gbdt": 0.5}  # half of the votes for each site
    odds = sum(v * logit(scores[name]) for name, v in votes.items())
    assert scores["blend"] == pytest.approx(1 / (1 + np.exp(-odds)))
    # The window of the 10th began before the other model was trained; only the first two days of
    # the window of the 16th have labels.
    starts = ["2025-01-13T00:00:00Z", "2025-01-16T00:00:00Z"]
    assert trained.facts.calibrated_on == tuple(starts)

    listed = ["--records", site[1], "--model", model, "--at", "2025-01-19T12:00"]
    assert main(["score", *listed, "--out", str(tmp_path / "lists")]) == 0
    rows = json.loads(next((tmp_path / "lists").glob("date=*/at_risk.json")).read_text())
    assert rows


def _values(predictor: Predictor) -> InstanceValues:
    """Draw instances with the columns of a predictor."""
    columns, rng = predictor.encoder.columns, np.random.default_rng(0)
    sequence = rng.normal(60, 20, (50, 6, len(columns.sequence))).astype(np.float32)
    context = rng.normal(0, 3, (50, len(columns.context))).astype(np.float32)
    return InstanceValues(sequence, context, columns.sequence, columns.context)


@pytest.mark.parametrize(
    ("config", "at", "start", "expected"),
    [
        ("own", "2025-01-12", "there", "--start-from: the training cutoff is 2025-01-13T00:00:00Z"),
        ("other", "2025-01-19", "there", "--start-from: its feature plan has kinds"),
        ("own", "2025-01-19", "nowhere", "--start-from"),
    ],
    ids=["trained later", "other columns", "no model"],
)
def test_invalid_start_is_refused(
    site: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    config: str,
    at: str,
    start: str,
    expected: str,
) -> None:
    folder, model = _folder(site), tmp_path / "model"
    options = ["--config", str(folder / f"{config}.toml"), "--at", at, "--model", str(model)]
    given = ["train", "--records", site[1], *options, "--start-from", str(folder / start)]
    assert main(given) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert expected in said
    assert not model.exists()
