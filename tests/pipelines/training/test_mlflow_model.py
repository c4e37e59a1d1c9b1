"""A registered predictor behind a real MLflow server, loaded and served as MLflow documents it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import mlflow
import numpy as np
import pandas as pd
import pytest

from forewarn.features.errors import InputError
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.storage.registry.model_registry import Registry

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:alembic"),
]

AT = "2025-01-22"
TREES = '[ensembles]\nparallel = ["gbdt"]\ncascade = [["gbdt", 0.2]]\n'
SITE_NAMES = '[records]\ncolumns = {gpu_serial = "device", timestamp = "ts", xid = "code"}\n'

Write = Callable[[pd.DataFrame, Path], Path]
Fleet = Callable[[int, int], pd.DataFrame]
Change = Callable[[pd.DataFrame], pd.DataFrame]


@contextlib.contextmanager
def running(arguments: list[str], ready: str, log: Path, **variables: str) -> Iterator[None]:
    """Run `mlflow` with arguments until the end of the block; wait until a page answers."""
    programs = log.parent / "bin"
    programs.mkdir(exist_ok=True)
    server = programs / "uvicorn"  # which MLflow calls by name, and which has to run this code
    server.write_text(f'#!/bin/sh\nexec {sys.executable} -m uvicorn "$@"\n')
    server.chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"} | variables
    environment |= {"MLFLOW_DISABLE_TELEMETRY": "true"}
    environment |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    command = [sys.executable, "-m", "mlflow", *arguments, "--host", "127.0.0.1"]
    with log.open("wb") as out:
        options: dict[str, Any] = {"stdout": out, "stderr": out, "start_new_session": True}
        process = subprocess.Popen(command, env=environment, **options)
    try:
        for _ in range(1200):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(ready, trust_env=False).status_code == 200:
                    break
            assert process.poll() is None, log.read_text()[-2000:]
            time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(300)


@pytest.fixture(scope="module")
def records(fleet_of: Fleet, write: Write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(fleet_of(60, 30), tmp_path_factory.mktemp("fleet30") / "records")


def config_in(folder: Path, config_text: str, store: str) -> Path:
    head, rest = config_text.split("[ensembles]")
    tail = rest[rest.index("[evaluation]") :]
    path = folder / "config.toml"
    path.write_text(f'{head}{TREES}{tail}[registry]\nstore = "{store}"\n')
    return path


@pytest.fixture(scope="module")
def tracked(
    records: Path,
    config_text: str,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Registry]:
    """Retrain once with a tracking server; return its registry."""
    folder = tmp_path_factory.mktemp("tracked")
    address = f"http://127.0.0.1:{(port := free_port())}"
    server = ["server", "--port", str(port), "--workers", "1"]
    server += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    server += ["--artifacts-destination", f"{folder}/artifacts"]
    with running(server, f"{address}/health", folder / "server.log"):
        config = config_in(folder, config_text, address)
        assert main(["retrain", *_options(records, config), "--at", AT]) == 0
        yield Registry(load_settings(config).registry)


def _options(records: Path, config: Path) -> list[str]:
    return ["--records", str(records), "--config", str(config)]


@pytest.fixture(scope="module")
def loaded(tracked: Registry) -> Any:
    mlflow.set_tracking_uri(tracked.uri)
    return mlflow.pyfunc.load_model("models:/gpu-failure@champion")


def read_raw(records: Path) -> pd.DataFrame:
    """Return the records before the cutoff, as pandas reads the folder."""
    before = [("timestamp", "<", pd.Timestamp(AT, tz="UTC"))]
    return pd.read_parquet(records, filters=before)


@pytest.fixture(scope="module")
def expected(loaded: Any, records: Path) -> pd.DataFrame:
    listed: pd.DataFrame = loaded.predict(read_raw(records))
    assert len(listed) > 50
    return listed


def test_predict_lists_as_the_command_does(
    tracked: Registry, records: Path, expected: pd.DataFrame, config_text: str, tmp_path: Path
) -> None:
    config = config_in(tmp_path, config_text, tracked.uri)
    score = ["score", *_options(records, config), "--at", AT, "--out", str(tmp_path)]
    assert main([*score, "--model", "models:/gpu-failure@champion"]) == 0
    (path,) = tmp_path.glob("date=*/at_risk.parquet")
    listed = pd.read_parquet(path)
    assert list(listed["gpu_serial"]) == list(expected["gpu_serial"])
    assert list(listed["probability"]) == list(expected["probability"])


def _categories(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.astype(dict.fromkeys(("gpu_serial", "gpu_type", "machine_id"), "category"))


def _in_berlin(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(timestamp=rows["timestamp"].dt.tz_convert("Europe/Berlin"))


def _naive(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(timestamp=rows["timestamp"].dt.tz_localize(None).astype("datetime64[ns]"))


def _as_texts(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(timestamp=[moment.isoformat() for moment in rows["timestamp"]])


def _nullable(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.astype({"xid": "Int32", "ecc_corrected": "UInt64", "failure": "boolean"})


def _shuffled(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sample(frac=1.0, random_state=1).assign(note=None)


def _with_an_empty_row(rows: pd.DataFrame) -> pd.DataFrame:
    """Add a row without a time, as a failures table in the folder gives it."""
    return rows.reset_index(drop=True).reindex(range(len(rows) + 1))


@pytest.mark.parametrize(
    "change",
    [_categories, _in_berlin, _naive, _as_texts, _nullable, _shuffled, _with_an_empty_row],
)
def test_predict_accepts_any_column_type(
    loaded: Any, records: Path, expected: pd.DataFrame, change: Change
) -> None:
    pd.testing.assert_frame_equal(loaded.predict(change(read_raw(records))), expected)


def test_optional_columns_may_be_missing(
    loaded: Any, records: Path, expected: pd.DataFrame
) -> None:
    rows = read_raw(records)
    listed = loaded.predict(rows.drop(columns=["failure", "slot", "date"]))
    failed = rows.loc[rows["failure"] == 1, "gpu_serial"]
    further = set(listed["gpu_serial"]) - set(expected["gpu_serial"])
    assert further  # what failed a moment ago has no complete window since
    assert further <= set(failed)


def test_predict_names_a_wrong_column(loaded: Any, records: Path) -> None:
    rows = read_raw(records)
    with pytest.raises(mlflow.MlflowException, match="xid"):
        loaded.predict(rows.drop(columns="xid"))
    numbers = rows["timestamp"].astype("int64")
    for column in (numbers, numbers.astype(object), numbers.astype("Float64")):
        with pytest.raises(InputError, match="`timestamp` holds numbers, expected times"):
            loaded.predict(rows.assign(timestamp=column))
    with pytest.raises(InputError, match="`timestamp` is no time"):
        loaded.predict(rows.assign(timestamp="soon"))
    with pytest.raises(InputError, match="holds no record"):
        loaded.predict(rows.iloc[:0])


def test_predict_takes_the_names_of_a_site(
    fleet_of: Fleet, write: Write, config_text: str, tmp_path: Path
) -> None:
    frame = fleet_of(60, 30)
    records = write(frame, tmp_path / "records")
    theirs = {"gpu_serial": "device", "timestamp": "ts", "xid": "code"}
    for path in records.glob("date=*/*.parquet"):
        pd.read_parquet(path).rename(columns=theirs).to_parquet(path)
    config = config_in(tmp_path, config_text, f"{tmp_path}/mlflow")
    config.write_text(config.read_text().replace("[records]\n", SITE_NAMES, 1))
    assert main(["retrain", *_options(records, config), "--at", AT]) == 0
    mlflow.set_tracking_uri(Registry(load_settings(config).registry).uri)
    model = mlflow.pyfunc.load_model("models:/gpu-failure@champion")
    rows = frame[frame["timestamp"] < pd.Timestamp(AT, tz="UTC")]
    listed = model.predict(rows.rename(columns=theirs))
    pd.testing.assert_frame_equal(model.predict(rows), listed)
    assert len(listed) > 50
    with pytest.raises(InputError, match="column `xid` is missing"):
        model.predict(rows.drop(columns="xid"))


def test_registered_model_holds_no_pickle(tracked: Registry) -> None:
    with downloaded(tracked) as folder:
        names = {path.name for path in folder.rglob("*") if path.is_file()}
    assert "MLmodel" in names
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".joblib"))]


@contextlib.contextmanager
def downloaded(registry: Registry) -> Iterator[Path]:
    from forewarn.pipelines.storage.files.stale_temporary_files import scratch_folder

    mlflow.set_tracking_uri(registry.uri)
    with scratch_folder() as folder:
        uri = "models:/gpu-failure@champion"
        yield Path(mlflow.artifacts.download_artifacts(uri, dst_path=str(folder)))


def test_models_serve_answers_json(
    tracked: Registry,
    records: Path,
    expected: pd.DataFrame,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    address = f"http://127.0.0.1:{(port := free_port())}"
    serve = ["models", "serve", "--env-manager", "local", "--port", str(port)]
    serve += ["--model-uri", "models:/gpu-failure@champion"]
    log = tmp_path / "serve.log"
    rows = read_raw(records).drop(columns="date")
    texts = _as_texts(rows).replace({np.nan: None})
    with running(serve, f"{address}/ping", log, MLFLOW_TRACKING_URI=tracked.uri):

        def ask(content: dict[str, Any]) -> httpx.Response:
            return httpx.post(f"{address}/invocations", json=content, timeout=300, trust_env=False)

        for orient in ("split", "records"):
            answer = ask({f"dataframe_{orient}": texts.to_dict(orient=orient)})
            assert answer.status_code == 200, answer.text[:500]
            served = pd.DataFrame(answer.json()["predictions"])
            assert list(served["gpu_serial"]) == list(expected["gpu_serial"])
            assert served["probability"].to_numpy() == pytest.approx(expected["probability"])
        seconds = rows.assign(timestamp=rows["timestamp"].astype("int64"))
        refused = ask({"dataframe_records": seconds.iloc[:9].to_dict(orient="records")})
        assert refused.status_code == 400
        assert "expected times, or ISO 8601 text" in refused.text
