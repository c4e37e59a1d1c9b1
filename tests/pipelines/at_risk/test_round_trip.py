"""A trained, saved and loaded model gives a list the same scores as the backtest at that time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forewarn.models.prediction.calibration import Calibration
from forewarn.models.prediction.ensembles import Committee
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.training.train import trained_walk

Fleet = Callable[[int, int], pd.DataFrame]
Write = Callable[[pd.DataFrame, Path], Path]

TRAINED = "2025-01-15"
LISTED = ("2025-01-15T01:00", "2025-01-16T12:00", "2025-01-18")
SETTINGS = """
[records]
interval = "1h"
[windows]
length = 6
horizon = 24
step = 1
[features]
{features}
[training]
retrain_every = "3d"
lengths = ["8d"]
{training}
[ensembles]
parallel = [{models}]
cascade = [["gbdt", 0.2]]
rules = 1.0
linear = 0.5
[evaluation]
k = 0.1
[list]
share = 0.05
"""
ALL_KINDS = """
categorical = ["gpu_type", "driver_version", "data_center"]
float = ["temperature_gpu", "power_draw", "fan_speed"]
counter = ["ecc_corrected", "pcie_replays"]
binary = ["throttled"]
code = ["xid", "event"]
date = ["expiration_date", "built"]
history = [16, 4]
peers = ["machine_id", "gpu_type"]
residuals = [["temperature_gpu", "power_draw"], ["power_draw", "fan_speed"]]
"""
ANOTHER_ORDER = """
categorical = ["driver_version", "gpu_type", "data_center"]
float = ["power_draw", "fan_speed", "temperature_gpu"]
counter = ["pcie_replays", "ecc_corrected"]
binary = ["throttled"]
code = ["event", "xid"]
date = ["built", "expiration_date"]
history = [4, 16]
peers = ["gpu_type", "machine_id"]
residuals = [["power_draw", "fan_speed"], ["temperature_gpu", "power_draw"]]
"""
NO_CATEGORY = """
float = ["temperature_gpu", "power_draw"]
counter = ["ecc_corrected"]
code = ["xid"]
history = [4]
peers = ["rack"]
residuals = [["temperature_gpu", "power_draw"]]
"""
WINDOW_ALONE = """
categorical = ["gpu_type", "data_center"]
float = ["temperature_gpu"]
counter = ["ecc_corrected"]
history = []
peers = []
residuals = []
"""
SLIDING = 'strategy = "sliding"'
FADING = "half_life = 0.4"  # so that the oldest records are not read
STUCK = """
float = ["fan_speed", "voltage"]
history = [4, 16]
peers = ["driver_version"]
residuals = [["voltage", "fan_speed"]]
"""


def _with_more_columns(fleet: pd.DataFrame) -> pd.DataFrame:
    """Add columns of every type; some GPUs have a driver and a data centre that appear late."""
    rng, frame = np.random.default_rng(5), fleet.copy()
    gpu = frame["gpu_serial"].str[1:].astype(int)
    n, late = len(frame), frame["timestamp"] >= pd.Timestamp(TRAINED, tz="UTC")
    # GPUs with odd numbers fail: these columns are informative, but not sufficient.
    frame["driver_version"] = np.array(["550.54", "535.10", "470.82", "535.10"])[gpu % 4]
    frame["data_center"] = np.array(["north", "east"])[(gpu % 2) * (gpu % 3 > 0)]
    frame["rack"] = [f"r{number}" for number in gpu // 10]
    frame.loc[late & (gpu % 5 == 0), "driver_version"] = "999.1"
    frame.loc[late & (gpu == 7), "gpu_type"] = "B300"
    frame["fan_speed"] = np.where(gpu % 4 == 0, 30.1, 30 + rng.normal(0, 3, n))
    frame["voltage"] = np.array([12.1, 11.9, 12.3, 0.7])[gpu % 4]
    frame["pcie_replays"] = rng.poisson(0.01, n)
    frame["pcie_replays"] = frame.groupby("gpu_serial")["pcie_replays"].cumsum()
    frame["throttled"] = (rng.random(n) < 0.05).astype(int)
    frame["event"] = np.where(rng.random(n) < 0.02, rng.integers(1, 5, n), 0)
    frame["expiration_date"] = np.where(gpu % 2, "2025-06-30", "2026-01-31")
    frame["built"] = np.where(gpu % 3, "2023-02-01", "2024-08-15")
    return frame


@pytest.fixture(scope="module", autouse=True)
def whole_models() -> Iterator[None]:
    """Fit all trees: with few trees, too many GPUs have equal probabilities."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("forewarn.models.prediction.trees.tree_model._N_TREES", 200)
        yield


@pytest.fixture(scope="module")
def records(fleet_of: Fleet, write: Write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    frame = _with_more_columns(fleet_of(40, 21))
    return write(frame, tmp_path_factory.mktemp("round_trip") / "records")


def _expected(scores: pd.DataFrame, model: Path, listed: pd.DataFrame) -> pd.DataFrame:
    """Return the backtest's ranking of the GPUs of a list, with the model's probability."""
    keys = ["gpu_serial", "window_end"]
    rows = listed[keys].merge(scores, on=keys, how="inner")
    members = json.loads((model / "predictor.json").read_text())
    votes = tuple(members["parallel"]), (), members["rules"]
    committee = Committee(*votes, linear=members["linear"])
    names = (*members["parallel"], "linear", "rules")
    blended = committee.blend({name: rows[f"score_{name}"].to_numpy() for name in names})
    rows["probability"] = Calibration.from_dict(members["calibration"]).apply(blended)
    rows["blend"] = blended
    ranked = rows.sort_values(["blend", "gpu_serial"], ascending=[False, True], kind="stable")
    return ranked.reset_index(drop=True)


@pytest.mark.parametrize(
    ("features", "models", "training"),
    [
        pytest.param(
            *(ALL_KINDS, '"mlp", "gbdt"', ""),
            id="three categoricals out of alphabetical order",
            marks=pytest.mark.long,
        ),
        pytest.param(ANOTHER_ORDER, '"mlp", "gbdt"', SLIDING, id="every column in another order"),
        pytest.param(NO_CATEGORY, '"gbdt"', FADING, id="no categorical column"),
        pytest.param(WINDOW_ALONE, '"gbdt"', SLIDING, id="categories and the window alone"),
        pytest.param(STUCK, '"gbdt"', "", id="sensors that do not move"),
    ],
)
def test_list_equals_backtest_exactly(
    records: Path, tmp_path: Path, features: str, models: str, training: str
) -> None:
    config, model = tmp_path / "config.toml", tmp_path / "model"
    config.write_text(SETTINGS.format(features=features, models=models, training=training))
    strategy = "sliding" if training == SLIDING else "expanding"
    given = ["--records", str(records), "--config", str(config)]
    one = ["--start", TRAINED, "--end", "2025-01-18", "--strategies", strategy]
    assert main(["backtest", *given, *one, "--out", str(tmp_path / "backtest")]) == 0
    assert main(["train", *given, "--at", TRAINED, "--model", str(model)]) == 0
    scores = pd.read_parquet(tmp_path / "backtest" / f"scores_{strategy}.parquet")
    for at in LISTED:
        out = tmp_path / at
        score = ["score", *given, "--model", str(model), "--at", at, "--out", str(out)]
        assert main(score) == 0
        (path,) = out.glob("date=*/at_risk.parquet")
        listed = pd.read_parquet(path)
        expected = _expected(scores, model, listed)
        assert len(expected) == len(listed) > 20
        assert listed["probability"].nunique() > 10
        assert list(listed["gpu_serial"]) == list(expected["gpu_serial"])
        assert list(listed["probability"]) == list(expected["probability"])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:alembic")
def test_resumed_retraining_equals_uninterrupted(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from forewarn.pipelines.storage.registry.model_registry import Registry
    from forewarn.pipelines.training.training_cache import RecipeCache

    monkeypatch.setattr("forewarn.models.prediction.trees.tree_model._N_TREES", 20)
    config = tmp_path / "config.toml"
    config.write_text(SETTINGS.format(features=ALL_KINDS, models='"gbdt"', training=""))
    settings = load_settings(config)
    job, moment = open_job(records, settings), parse_moment("2025-01-21")
    table = settings.registry.model_copy(update={"store": str(tmp_path / "mlflow")})
    registry = Registry(table, create=True)
    with registry.run("retraining", {"forewarn.kind": "retraining"}) as run:
        kept, recalled = (RecipeCache(registry, job.walk_settings, run) for _ in range(2))
        walk, undisturbed, _ = trained_walk(job, moment, cache=kept)
        again, resumed, _ = trained_walk(job, moment, cache=recalled)
    assert (kept.recalled, recalled.trained) == (0, 0)
    assert kept.trained == recalled.recalled > 1
    assert walk.windows
    for one, other in zip(walk.windows, again.windows, strict=True):
        assert one.by_strategy.keys() == other.by_strategy.keys()
        for strategy, (_, scores) in one.by_strategy.items():
            assert scores["blend"].tolist() == other.by_strategy[strategy][1]["blend"].tolist()
    assert undisturbed.calibration == resumed.calibration
    assert undisturbed.version == resumed.version
