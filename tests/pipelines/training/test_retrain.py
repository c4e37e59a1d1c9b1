"""Retraining, promotion gate and registry, on a small fleet and a real MLflow with SQLite."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forewarn.models.prediction import training_set as training_module
from forewarn.models.prediction.trees import tree_model as trees
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.scheduled_tasks import score_site
from forewarn.pipelines.storage.registry.drift_report import read_drift
from forewarn.pipelines.storage.registry.model_registry import Registry
from forewarn.pipelines.training.training_cache import RecipeCache

pytestmark = pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:alembic")

DAYS = ("2025-01-16", "2025-01-19", "2025-01-22", "2025-01-25")
TREES = '[ensembles]\nparallel = ["gbdt"]\ncascade = [["gbdt", 0.2]]\n'

Write = Callable[[pd.DataFrame, Path], Path]
Fleet = Callable[[int, int], pd.DataFrame]


def config_of(text: str, folder: Path, more: str = "") -> Path:
    """Write the configuration of the small fleet, with only trees and a separate registry."""
    head, rest = text.split("[ensembles]")
    path = folder / "config.toml"
    tail = rest[rest.index("[evaluation]") :]
    registry = f'[registry]\nstore = "{folder}/mlflow"\n'
    path.write_text(
        head.replace("[training]\n", f'[training]\nstrategy = "variable"\n{more}')
        + TREES
        + tail
        + registry
    )
    return path


@pytest.fixture(scope="module")
def records(fleet_of: Fleet, write: Write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(fleet_of(60, 30), tmp_path_factory.mktemp("fleet30") / "records")


class Site:
    """Records, a configuration and its registry."""

    def __init__(self, records: Path, config: Path) -> None:
        self.records, self.config = records, config

    def retrain(self, day: str, *, config: Path | None = None) -> int:
        given = ["--records", str(self.records), "--config", str(config or self.config)]
        return main(["retrain", *given, "--at", day, "--json"])

    @property
    def registry(self) -> Registry:
        return Registry(load_settings(self.config).registry)

    def models(self, *arguments: str) -> int:
        return main(["models", *arguments, "--config", str(self.config), "--json"])


def in_a_process(site: Site, day: str) -> str:
    """Retrain in a new process, which has only the registry; return its output."""
    code = (
        "import sys; from forewarn.pipelines.cli.main import main\n"
        "from forewarn.models.prediction.trees import tree_model\n"
        f"tree_model._N_TREES = {trees._N_TREES}; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "retrain", "--at", day, "--json"]
    command += ["--records", str(site.records), "--config", str(site.config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(
    records: Path, config_text: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Site, list[dict[str, Any]]]:
    """Retrain four times, once in a separate process, and return the outputs."""
    folder = tmp_path_factory.mktemp("retrained")
    site = Site(records, config_of(config_text, folder))
    said = []
    for day in DAYS:
        if day == DAYS[1]:
            said.append(json.loads(in_a_process(site, day)))
            continue
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert site.retrain(day) == 0
        said.append(json.loads(output.getvalue()))
    return site, said


def test_retraining_registers_and_promotes(site: tuple[Site, list[dict[str, Any]]]) -> None:
    _, said = site
    assert [one["version"] for one in said] == ["1", "2", "3", "4"]
    assert all(one["promoted"] and one["champion"] == one["version"] for one in said)
    assert [one["name"][:10] for one in said] == list(DAYS)


def test_champion_is_compared_on_unseen_windows(
    site: tuple[Site, list[dict[str, Any]]],
) -> None:
    _, said = site
    # The first is compared with the rules. The last complete window starts six days before; no
    # earlier champion is that old on the second day.
    rivals = [one["comparison"] and one["comparison"]["by_rules"] for one in said]
    assert rivals == [True, None, False, False]
    found = said[-1]["comparison"]
    assert found["difference"] == pytest.approx(found["challenger"] - found["champion"])
    assert 0 < found["champion"] <= 1
    low, high = found["interval"]
    assert low <= high


def test_cached_recipes_are_reused(
    site: tuple[Site, list[dict[str, Any]]],
) -> None:
    there, _ = site
    runs = there.registry.find({"forewarn.kind": "recipe"})
    keys = [(run.data.tags["forewarn.at"], run.data.tags["forewarn.length"]) for run in runs]
    assert len(keys) == len(set(keys))
    # As of the 19th: both lengths, compared by the retraining of the 25th, which trains one of
    # them; the retraining of the 19th trained the other.
    assert sum(at == f"{DAYS[1]}T00:00:00Z" for at, _ in keys) == 2


def test_mlflow_contains_all_metrics(
    site: tuple[Site, list[dict[str, Any]]],
) -> None:
    there, said = site
    (run,) = [
        r
        for r in there.registry.find({"forewarn.kind": "retraining"})
        if r.info.run_id == said[-1]["run"]
    ]
    assert {"git_commit", "lock", "at", "training.lengths"} <= set(run.data.params)
    assert run.data.params["models.gbdt.num_leaves"] == "31"
    assert run.data.metrics["gate/difference"] == said[-1]["comparison"]["difference"]
    for name in ("challenger", "champion"):
        assert run.data.metrics[f"{name}/average_precision"] == said[-1]["comparison"][name]
    assert any(name.startswith("drift/") for name in run.data.metrics)
    assert "drift/scores of the predictor" in run.data.metrics
    with there.registry.attached(run.info.run_id, "plots") as plots:
        drawn = {path.name for path in plots.iterdir()}
    assert {"precision_over_time.png", "reliability.png", "reasons.png"} <= drawn
    lengths = there.registry.find(
        {"mlflow.parentRunId": run.info.run_id, "forewarn.kind": "length"}
    )
    assert sorted(one.data.params["train_length_days"] for one in lengths) == ["4.0", "6.0"]
    models = there.registry.find({"mlflow.parentRunId": lengths[0].info.run_id})
    assert {"gbdt", "parallel", "cascade"} <= {one.info.run_name for one in models}
    gbdt = next(one for one in models if one.info.run_name == "gbdt")
    assert {"paper/precision_at_k", "fleet/list_precision"} <= set(gbdt.data.metrics)
    with there.registry.attached(run.info.run_id, "plots") as folder:
        names = {path.name for path in folder.iterdir()}
    assert names == {
        *("precision_over_time.png", "daily_list.png", "reasons.png", "reliability.png"),
    }


def test_retrainings_compare_by_quality(site: tuple[Site, list[dict[str, Any]]]) -> None:
    there, said = site
    run = next(r for r in _retrainings(there) if r.info.run_id == said[-1]["run"])
    assert run.info.run_name == f"retrain {DAYS[-1]}"
    quality = {
        *("average_precision", "average_precision_low", "average_precision_high"),
        *("list_precision", "list_precision_low", "list_precision_high"),
        *("calibration_slope", "calibration_intercept", "failures_caught", "failures"),
    }
    assert quality <= set(run.data.metrics)
    for prefix in ("challenger", "champion"):
        both = {"average_precision", "list_precision", "failures_caught", "calibration_slope"}
        assert {f"{prefix}/{name}" for name in both} <= set(run.data.metrics)
    assert run.data.metrics["failures_caught"] <= run.data.metrics["failures"]
    first = next(r for r in _retrainings(there) if r.info.run_id == said[0]["run"])
    assert "rules/list_precision" in first.data.metrics
    assert "champion/list_precision" not in first.data.metrics
    with there.registry.attached(run.info.run_id, "report.html") as page:
        text = page.read_text()
    assert "Of 100 GPUs on the daily list" in text
    assert "not comparable" not in text


def _retrainings(site: Site) -> list[Any]:
    return site.registry.find({"forewarn.kind": "retraining"})


def test_champion_history_is_tagged(site: tuple[Site, list[dict[str, Any]]]) -> None:
    there, said = site
    newest, older = there.registry.version("4"), there.registry.version("3")
    assert older.tags["forewarn.replaced_by"] == "4"
    assert newest.tags["forewarn.follows"] == "3"
    assert newest.tags["forewarn.champion_since"] == older.tags["forewarn.champion_until"]
    assert "forewarn.champion_until" not in newest.tags
    run = next(r for r in _retrainings(there) if r.info.run_id == said[-1]["run"])
    assert (run.data.tags["forewarn.version"], run.data.tags["forewarn.gate"]) == ("4", "passed")
    described = run.data.tags["mlflow.note.content"]
    assert "became the champion, in place of version 3. Average precision on" in described


def test_data_are_an_mlflow_dataset(site: tuple[Site, list[dict[str, Any]]]) -> None:
    there, said = site
    run = next(r for r in _retrainings(there) if r.info.run_id == said[-1]["run"])
    (used,) = run.inputs.dataset_inputs
    assert [(tag.key, tag.value) for tag in used.tags] == [("mlflow.data.context", "training")]
    counts = json.loads(used.dataset.profile)
    assert (counts["last"], counts["gpus"]) == ("2025-01-24T23:00:00Z", 60)
    span = pd.Timestamp(counts["last"]) - pd.Timestamp(counts["first"])
    assert counts["num_rows"] == 60 * (span / pd.Timedelta("1h") + 1)
    digests = {r.inputs.dataset_inputs[0].dataset.digest for r in _retrainings(there)}
    assert len(digests) == len(DAYS)


def test_finished_retraining_is_not_repeated(
    site: tuple[Site, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    there, said = site
    assert there.retrain(DAYS[-1]) == 0
    assert json.loads(capsys.readouterr().out) == said[-1]
    assert len(there.registry.versions()) == 4


def test_registered_model_matches_command(
    site: tuple[Site, list[dict[str, Any]]], tmp_path: Path
) -> None:
    there, said = site
    arguments = ["--records", str(there.records), "--config", str(there.config), "--at", DAYS[-1]]
    for model in ("models:/gpu-failure@champion", "models:/gpu-failure/4"):
        place = tmp_path / model.rsplit("/", 1)[1]
        assert main(["score", *arguments, "--model", model, "--out", str(place)]) == 0
    lists = [pd.read_parquet(path) for path in sorted(tmp_path.glob("*/date=*/at_risk.parquet"))]
    pd.testing.assert_frame_equal(lists[0], lists[1])
    assert set(lists[0]["model_version"]) == {said[-1]["name"]}
    code = (
        "import mlflow, pandas as pd, sys\n"
        "mlflow.set_tracking_uri(sys.argv[1])\n"
        "model = mlflow.pyfunc.load_model('models:/gpu-failure@champion')\n"
        "rows = pd.concat(map(pd.read_parquet, sorted(__import__('pathlib').Path(sys.argv[2])"
        ".glob('date=*/*.parquet'))))\n"
        f"rows = rows[rows['timestamp'] < pd.Timestamp('{DAYS[-1]}', tz='UTC')]\n"
        "rows['timestamp'] = rows['timestamp'].dt.tz_localize(None)\n"
        "rows = rows[rows['failure'] == 0].astype({'ecc_corrected': float, 'xid': float})\n"
        "found = model.predict(rows)\n"
        "print(found.to_json(orient='records'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, there.registry.uri, str(there.records)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    served = pd.DataFrame(json.loads(done.stdout.splitlines()[-1]))
    assert set(served["gpu_serial"]) >= set(lists[0]["gpu_serial"])


@pytest.fixture
def shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shuffle the labels of every training."""
    build = training_module.build_training_sets

    def wrong(*arguments: Any) -> Any:
        for encoder, training in build(*arguments):
            order = np.random.default_rng(1).permutation(len(training.labels))
            training.labels[:] = training.labels[order]
            yield encoder, training

    monkeypatch.setattr("forewarn.models.prediction.trained_recipe.build_training_sets", wrong)


def refused(site: Site, said: dict[str, Any], why: str) -> None:
    """Check that the champion is unchanged and that MLflow has the reason."""
    assert not said["promoted"]
    assert any(why in reason for reason in said["reasons"])
    champion = site.registry.champion()
    assert champion is not None
    assert champion.number == said["champion"] == "4"
    version = next(one for one in site.registry.versions() if one.number == said["version"])
    assert why in version.tags["forewarn.gate"]
    assert "challenger" in version.aliases
    run = next(r for r in _retrainings(site) if r.info.run_id == said["run"])
    assert (
        f"was refused, version 4 stays: {said['reasons'][0]}"
        in run.data.tags["mlflow.note.content"]
    )


@pytest.mark.usefixtures("shuffled")
def test_shuffled_labels_are_refused(
    site: tuple[Site, list[dict[str, Any]]],
    config_text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, _ = site
    other = config_of(config_text, tmp_path, more="seed = 9\n")
    other.write_text(other.read_text().replace(f"{tmp_path}/mlflow", there.registry.table.store))
    assert there.retrain("2025-01-28", config=other) == 1
    said = capsys.readouterr()
    refused(there, json.loads(said.out.splitlines()[-1]), "below the champion's")
    assert "alert (refused)" in said.err


@pytest.mark.usefixtures("shuffled")
def test_rules_stay_when_the_first_model_is_worse(
    records: Path, config_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of(config_text, tmp_path)
    config.write_text(f'{config.read_text()}[site]\nrecords = "{records}"\nlists = "lists"\n')
    site = Site(records, config)
    assert site.retrain("2025-01-25") == 1
    outcome = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert outcome["champion"] is None
    assert outcome["comparison"]["by_rules"]
    (reason,) = outcome["reasons"]
    assert "is below the built-in rules'" in reason
    page = (Path(score_site(str(config), "2025-01-25")) / "at_risk.html").read_text()
    assert "No champion was trained by 2025-01-26T00:00:00Z (version 1 refused: average" in page
    assert "below the built-in rules" in page


def test_constant_input_is_refused(
    site: tuple[Site, list[dict[str, Any]]],
    write: Write,
    fleet_of: Fleet,
    config_text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, _ = site
    frame = fleet_of(60, 30)
    late = frame["timestamp"] >= pd.Timestamp("2025-01-26", tz="UTC")
    frame.loc[late, "power_draw"] = 0.0
    folder = write(frame, tmp_path / "records")
    other = config_of(config_text, tmp_path, more="seed = 8\n")
    other.write_text(other.read_text().replace(f"{tmp_path}/mlflow", there.registry.table.store))
    assert Site(folder, there.config).retrain("2025-01-28", config=other) == 1
    said = capsys.readouterr()
    refused(there, json.loads(said.out.splitlines()[-1]), "input `power_draw` became constant")
    assert "alert (drift)" in said.err
    # Programs that act on predictions read the drift too.
    assert "power_draw" in read_drift(folder).drifted


def test_rollback_restores_previous_champion(
    site: tuple[Site, list[dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, said = site
    assert there.models("rollback") == 0
    assert json.loads(capsys.readouterr().out)["version"] == "3"
    arguments = ["--records", str(there.records), "--config", str(there.config)]
    arguments += ["--at", "2025-01-26", "--model", "models:/gpu-failure@champion"]
    assert main(["score", *arguments, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("date=*/at_risk.parquet")
    assert set(pd.read_parquet(path)["model_version"]) == {said[2]["name"]}
    again, ended = there.registry.version("3"), there.registry.version("4")
    assert ended.tags["forewarn.replaced_by"] == "3"
    assert "forewarn.champion_until" in ended.tags
    assert not {"forewarn.champion_until", "forewarn.replaced_by"} & again.tags.keys()
    # What was rolled back is no reference any more; promoted by hand it is one again.
    assert there.registry.champion_before(2**62).number == "3"  # type: ignore[union-attr]
    assert there.models("promote", "4") == 0
    assert there.registry.champion_before(2**62).number == "4"  # type: ignore[union-attr]


def test_models_are_listed_and_shown(
    site: tuple[Site, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    there, said = site
    assert there.models("list") == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["version"] for one in listed][-4:] == ["4", "3", "2", "1"]
    assert there.models("show", "2") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["facts"]["trained_at"][:10]) == (said[1]["name"], DAYS[1])


def test_killed_retraining_resumes(
    site: tuple[Site, list[dict[str, Any]]],
    config_text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, said = site
    fresh = Site(there.records, config_of(config_text, tmp_path))
    keep, kept = RecipeCache.keep, []

    def killed(self: RecipeCache, moment: int, trained: Any) -> None:
        keep(self, moment, trained)
        kept.append(moment)
        if len(kept) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RecipeCache, "keep", killed)
        assert fresh.retrain(DAYS[0]) == 130
    assert fresh.registry.versions() == []
    assert fresh.retrain(DAYS[0]) == 0
    outcome = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert outcome["name"] == said[0]["name"]
    runs = fresh.registry.find({"forewarn.kind": "recipe"})
    assert len(runs) == len({tuple(sorted(run.data.tags.items())[:6]) for run in runs})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["models", "list"], "holds no registry"),
        (["models", "promote", "77"], "holds no registry"),
        (["score", "--model", "models:/gpu-failure@champion"], "holds no registry"),
        (["retrain"], "found 0 positives"),
    ],
)
def test_missing_registry_is_one_line(
    records: Path,
    config_text: str,
    tmp_path: Path,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*arguments, "--config", str(config_of(config_text, tmp_path))]
    if arguments[0] != "models":
        given += ["--records", str(records), "--at", "2025-01-03"]
    if arguments[0] == "score":
        given += ["--out", str(tmp_path / "lists")]
    assert main(given) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["models", "promote", "77"], "no version '77'"),
        (["models", "show", "77"], "no version '77'"),
        (["score", "--model", "models:/gpu-failure@missing"], "missing"),
        (["score", "--model", "models:/missing/1"], "not found"),
    ],
)
def test_unregistered_model_is_one_line(
    site: tuple[Site, list[dict[str, Any]]],
    tmp_path: Path,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, _ = site
    given = [*arguments, "--config", str(there.config)]
    if arguments[0] == "score":
        given += ["--records", str(there.records), "--at", DAYS[0], "--out", str(tmp_path)]
    assert main(given) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_review_is_logged_once_labels_are_known(tmp_path: Path) -> None:
    """The delayed precision of the lists is known a week later and logged once."""
    from forewarn.pipelines.scheduled_tasks import review_site

    config = tmp_path / "site.toml"
    config.write_text('[site]\nrecords = "records"\nlists = "lists"\n')
    (tmp_path / "records").mkdir()
    moment = pd.Timestamp("2025-01-10", tz="UTC")
    failures = {"gpu_serial": ["g1"], "failed_at": [moment + pd.Timedelta(hours=5)]}
    pd.DataFrame(failures).to_parquet(tmp_path / "records" / "failures.parquet")
    rows = pd.DataFrame(
        {
            "gpu_serial": ["g1", "g2", "g3"],
            "probability": [0.5, 0.2, 0.1],
            "flagged": [True, True, False],
            "window_end": moment.as_unit("us"),
            "valid_until": (moment + pd.Timedelta(days=1)).as_unit("us"),
        }
    )
    folder = tmp_path / "lists" / "date=2025-01-10"
    folder.mkdir(parents=True)
    rows.to_parquet(folder / "at_risk.parquet")
    for _ in range(2):
        found = review_site(str(config), "2025-01-20")
        assert found is not None
        assert found["precision"] == 0.5
    table = load_settings(config).registry.model_copy(update={"store": str(tmp_path / "mlflow")})
    (run,) = Registry(table).find({"forewarn.kind": "review"})
    assert run.data.metrics["lists/precision"] == 0.5
    assert run.data.metrics["lists/hits"] == 1
