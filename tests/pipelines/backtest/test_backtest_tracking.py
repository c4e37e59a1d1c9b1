"""A backtest with a configured registry is an MLflow run."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest

from forewarn.features.time_units import DAY
from forewarn.pipelines.backtest.run_inputs import configuration_params, records_dataset
from forewarn.pipelines.backtest.windowed_records import WindowedRecords
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.prediction_job import open_job
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.registry.mlflow_experiment import Experiment

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:alembic"),
]

LINEAR = '[ensembles]\nparallel = ["linear"]\ncascade = [["linear", 0.2]]\nlinear = 0.0\n'


@pytest.fixture
def tracked(config_text: str, empty_store: bytes, tmp_path: Path) -> Path:
    """Return a configuration with an empty registry."""
    head, rest = config_text.split("[ensembles]")
    store = tmp_path / "mlflow"
    store.mkdir()
    (store / "mlflow.db").write_bytes(empty_store)
    path = tmp_path / "config.toml"
    tail = rest[rest.index("[evaluation]") :]
    path.write_text(f'{head}{LINEAR}{tail}[registry]\nstore = "{store}"\n')
    return path


def _backtest(records: Path, config: Path, out: Path, end: str) -> int:
    options = ["--records", str(records), "--config", str(config), "--out", str(out)]
    return main(["backtest", *options, "--strategies", "fixed", "--end", end])


def test_backtest_is_logged_as_run(records: Path, tracked: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert _backtest(records, tracked, out, "2025-01-15") == 0
    report = json.loads((out / "report.json").read_text())
    experiment = Experiment(load_settings(tracked).registry)
    (run,) = experiment.find({"forewarn.kind": "backtest"})
    assert run.info.run_name == "backtest 2025-01-08 to 2025-01-21"
    lists = report["fleet"]["blend_expanding"]
    for name in ("average_precision", "list_precision"):
        assert run.data.metrics[name] == lists[name]
        bounds = [run.data.metrics[f"{name}_{end}"] for end in ("low", "high")]
        assert bounds == lists[f"{name}_interval"]
    assert run.data.metrics["failures_caught"] == lists["failures_caught"]
    calibration = report["calibration"]["expanding"]
    for name in ("slope", "intercept"):
        assert run.data.metrics[f"calibration_{name}"] == calibration[name]
    assert run.data.params["training.retrain_every"] == "3d"
    assert run.data.params["models.linear.column_variance"] == "0.003"
    assert "on the daily list" in run.data.tags["mlflow.note.content"]
    with experiment.attached(run.info.run_id, "") as folder:
        assert (folder / "report.html").read_bytes() == (out / "report.html").read_bytes()
        assert {path.name for path in (folder / "plots").iterdir()} >= {"daily_list.png"}
        settings = json.loads((folder / "configuration.json").read_text())
    assert settings["windows.horizon"] == 24
    nested = experiment.find({"mlflow.parentRunId": run.info.run_id})
    assert sorted(one.info.run_name for one in nested) == ["strategy expanding", "strategy fixed"]
    methods = experiment.find({"mlflow.parentRunId": nested[0].info.run_id})
    assert {"linear", "blend", "rules"} <= {one.info.run_name for one in methods}


def test_backtest_without_registry_logs_nothing(backtest: Path) -> None:
    assert not (backtest.parent / "mlflow").exists()
    assert not Path("mlflow").exists()


def test_failing_registry_costs_only_a_note(
    records: Path, tracked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mlflow" / "mlflow.db").write_bytes(b"no database " * 500)
    assert _backtest(records, tracked, tmp_path / "out", "2025-01-09") == 0
    assert "complete, but not logged to MLflow: `registry.store`" in capsys.readouterr().err
    assert (tmp_path / "out" / "report.html").exists()


def _records_at(records: Path, config: Path, day: str) -> WindowedRecords:
    job, end = open_job(records, load_settings(config)), parse_moment(day)
    store = job.store.pinned(None, end)
    return WindowedRecords.from_store(
        store, job.walk_settings, lambda _: [end - 5 * DAY], None, end
    )


def test_dataset_digest_is_of_known_data(
    fleet: pd.DataFrame, records: Path, config: Path, tmp_path: Path
) -> None:
    """Later records leave the digest of earlier ones unchanged; one changed value does not."""
    before = records_dataset(_records_at(records, config, "2025-01-15"))
    copy = tmp_path / "records"
    for path in sorted(records.glob("date=*/*.parquet")):
        if path.parent.name < "date=2025-01-15":
            (copy / path.parent.name).mkdir(parents=True)
            (copy / path.parent.name / path.name).write_bytes(path.read_bytes())
    same = records_dataset(_records_at(copy, config, "2025-01-15"))
    assert same.digest == before.digest
    counts = json.loads(same.profile or "")
    known = fleet[fleet["timestamp"] < pd.Timestamp("2025-01-15", tz="UTC")]
    assert (counts["num_rows"], counts["gpus"]) == (len(known), known["gpu_serial"].nunique())
    assert (counts["first"], counts["last"]) == ("2025-01-01T00:00:00Z", "2025-01-14T23:00:00Z")
    path = copy / "date=2025-01-10" / "part-0.parquet"
    changed = pd.read_parquet(path)
    changed["power_draw"] += np.arange(len(changed)) == 3
    changed.to_parquet(path, index=False)
    assert records_dataset(_records_at(copy, config, "2025-01-15")).digest != before.digest


def test_dataset_source_finds_the_records(records: Path, config: Path) -> None:
    dataset = records_dataset(_records_at(records, config, "2025-01-15"))
    source = mlflow.data.get_source(dataset)
    assert Path(source.load()).resolve() == records.resolve()


def test_configuration_params_are_as_in_toml(config: Path) -> None:
    params = configuration_params(load_settings(config))
    assert params["training.lengths"] == "4d, 6d"
    assert params["records.interval"] == "1h"
    assert params["features.float"] == "temperature_gpu, power_draw"
    assert not [key for key in params if key.startswith(("registry", "site", "collector"))]
