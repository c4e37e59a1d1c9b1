"""`forewarn tune`: the search never sees the windows that judge it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pandas as pd
import pytest

from forewarn.features.time_units import DAY
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings, parse_settings
from forewarn.pipelines.prediction_job import Job, open_job
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.training.tuning import (
    HISTORY,
    Tuning,
    TuningBudget,
    candidate_settings,
    tune,
)
from forewarn.pipelines.training.tuning_report import toml_fragment, tuning_text

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
float = ["temperature_gpu", "power_draw"]
counter = ["ecc_corrected"]
history = [4]
peers = []
residuals = []
[training]
retrain_every = "2d"
lengths = ["6d"]
[models.gbdt]
num_leaves = 9
[ensembles]
parallel = ["gbdt"]
cascade = [["gbdt", 0.2]]
"""
AT = "2025-01-21"
BUDGET = TuningBudget(trials=4, minutes=60.0, windows=2)


@pytest.fixture(scope="module")
def fleet(fleet_of: Fleet) -> pd.DataFrame:
    return fleet_of(30, 21)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "my.toml"
    path.write_text(SETTINGS)
    return path


@pytest.fixture(scope="module")
def records(fleet: pd.DataFrame, write: Write, config: Path) -> Path:
    return write(fleet, config.parent / "records")


def job_of(records: Path, config: Path) -> Job:
    return open_job(records, load_settings(config))


@pytest.fixture(scope="module")
def tuning(records: Path, config: Path) -> Tuning:
    return tune(job_of(records, config), parse_moment(AT), BUDGET)


def test_windows_for_choosing_end_before_judging(tuning: Tuning) -> None:
    every, horizon = 2 * DAY, DAY
    assert tuning.choosing[-1] + every + horizon <= tuning.judging[0]
    assert tuning.judging[-1] + every + horizon <= parse_moment(AT)
    assert len(tuning.choosing) == len(tuning.judging) == 2


def test_first_trial_is_the_configuration(tuning: Tuning) -> None:
    assert tuning.trials[0][1] == tuning.default
    assert tuning.default["gbdt.num_leaves"] == 9
    assert tuning.default["gbdt.learning_rate"] == 0.05
    assert tuning.default[HISTORY] == "4"
    assert "linear.column_variance" in tuning.default
    assert tuning.chosen == max(tuning.trials, key=lambda trial: trial[0])[1]
    assert len(tuning.trials) == 4


def test_same_seed_gives_same_trials(tuning: Tuning, records: Path, config: Path) -> None:
    assert tune(job_of(records, config), parse_moment(AT), BUDGET) == tuning


def test_trials_do_not_see_the_future(
    tuning: Tuning, fleet: pd.DataFrame, write: Write, config: Path, tmp_path: Path
) -> None:
    """What happens or is learnt from the first window for judging on moves the judgement only."""
    later = fleet["timestamp"] >= pd.Timestamp(format_iso(tuning.judging[0]))
    changed = fleet.copy()
    changed.loc[later, ["temperature_gpu", "power_draw", "ecc_corrected"]] = 1
    records = write(changed, tmp_path / "records")
    first, start = (pd.Timestamp(format_iso(at)) for at in (tuning.choosing[0], tuning.judging[0]))
    fails = fleet.groupby("gpu_serial")["failure"].max() > 0
    serials = sorted(fails.index[~fails])[:5]
    late = {"gpu_serial": serials, "failed_at": first + pd.Timedelta(hours=30)}
    learnt = {"repaired_at": pd.NaT, "cause": "", "known_at": start + pd.Timedelta(hours=1)}
    pd.DataFrame(late | learnt).to_parquet(records / "failures.parquet")
    moved = tune(job_of(records, config), parse_moment(AT), BUDGET)
    assert (moved.trials, moved.chosen) == (tuning.trials, tuning.chosen)
    assert moved.chosen_precision != tuning.chosen_precision


def test_no_trial_starts_after_the_minutes(records: Path, config: Path) -> None:
    seconds: Iterator[int] = count(step=50)
    budget = TuningBudget(trials=30, minutes=2.0, windows=2)
    short = tune(job_of(records, config), parse_moment(AT), budget, lambda: float(next(seconds)))
    assert len(short.trials) == 3


def test_fragment_is_a_configuration(tuning: Tuning, records: Path, config: Path) -> None:
    settings = load_settings(config)
    chosen = dict(tuning.chosen) | {HISTORY: "4,8"}
    text = toml_fragment(replace(tuning, chosen=chosen), settings)
    merged = tomllib.loads(SETTINGS) | tomllib.loads(text)
    read = parse_settings(merged, name="tuned.toml")
    assert read.features == settings.features.model_copy(update={"history": (4, 8)})
    walk = candidate_settings(job_of(records, config).walk_settings, chosen)
    assert read.models.hyperparameters == walk.recipe.hyperparameters
    assert walk.recipe.plan.history == (4, 8)


@pytest.mark.parametrize(
    ("interval", "advice"),
    [((0.01, 0.2), "pays: use"), ((-0.01, 0.2), "does not pay"), (None, "does not pay")],
)
def test_text_says_whether_it_pays(
    tuning: Tuning, interval: tuple[float, float] | None, advice: str
) -> None:
    assert advice in tuning_text(replace(tuning, interval=interval))


def test_command_writes_fragment_and_json(
    records: Path, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--records", str(records), "--config", str(config), "--at", AT, "--trials", "2"]
    options += ["--windows", "2", "--models", "gbdt", "--out", str(tmp_path / "t.toml"), "--json"]
    assert main(["tune", *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    written = tomllib.loads((tmp_path / "t.toml").read_text())
    leaves = printed["chosen"]["gbdt.num_leaves"]
    assert written["models"]["gbdt"]["num_leaves"] == leaves
    assert len(printed["trials"]) == 2


def test_too_few_failures_is_one_line(records: Path, config: Path) -> None:
    budget = TuningBudget(trials=2, minutes=1.0, windows=3)
    with pytest.raises(JobError, match=r"no test window from .* too few failures"):
        tune(job_of(records, config), parse_moment("2025-01-12"), budget)
