"""A small hourly fleet and one backtest of it; running tasks and a detector fitted to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.evaluation.simulation.tasks.simulator import SimulatedTask, healthy_task
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.sandbox.simulate_tasks import metrics_table

CONFIG = """
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
code = ["xid"]
history = [4]
peers = ["machine_id"]
residuals = [["temperature_gpu", "power_draw"]]
[training]
retrain_every = "3d"
lengths = ["4d", "6d"]
[ensembles]
parallel = ["gbdt", "mlp"]
cascade = [["gbdt", 0.2], ["mlp", 0.1]]
[evaluation]
k = 0.1
[list]
share = 0.05
"""


def make_fleet(n_gpus: int = 40, n_days: int = 21, seed: int = 0) -> pd.DataFrame:
    """Return records; every other day some GPUs fail after a day of corrected errors."""
    rng = np.random.default_rng(seed)
    hours = np.arange(n_days * 24)
    start = pd.Timestamp("2025-01-01", tz="UTC")
    frames = []
    for gpu in range(n_gpus):
        fails = 40 + 11 * gpu if gpu % 2 else 10**6
        near = (hours < fails) & (hours >= fails - 30)
        frame = pd.DataFrame(
            {
                "gpu_serial": f"S{gpu:03d}",
                "timestamp": start + pd.to_timedelta(hours, unit="h"),
                "failure": ((hours >= fails) & (hours < fails + 30)).astype("int8"),
                "machine_id": f"m{gpu // 4}",
                "slot": gpu % 4,
                "gpu_type": "A100" if gpu % 3 else "H100",
                "temperature_gpu": 60 + rng.normal(0, 2, len(hours)) + 8 * near,
                "power_draw": 300 + rng.normal(0, 20, len(hours)),
                "ecc_corrected": np.cumsum(rng.poisson(0.05 + 3.0 * near)),
                "xid": np.where(rng.random(len(hours)) < 0.01, 13, 0),
            }
        )
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def write_records(frame: pd.DataFrame, folder: Path) -> Path:
    """Write one file a date."""
    for date, rows in frame.groupby(frame["timestamp"].dt.date):
        partition = folder / f"date={date}"
        partition.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(partition / "part-0.parquet", index=False)
    return folder


@pytest.fixture(scope="session")
def fleet() -> pd.DataFrame:
    return make_fleet()


@pytest.fixture(scope="session")
def fleet_of() -> Callable[[int, int], pd.DataFrame]:
    """Return `fleet_of(n_gpus, n_days)`."""
    return make_fleet


@pytest.fixture(scope="session")
def config_text() -> str:
    return CONFIG


@pytest.fixture(scope="session")
def write() -> Callable[[pd.DataFrame, Path], Path]:
    return write_records


@pytest.fixture(scope="session")
def records(fleet: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_records(fleet, tmp_path_factory.mktemp("fleet") / "records")


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="session")
def backtest(records: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("backtest")
    arguments = ["--records", str(records), "--config", str(config), "--out", str(out)]
    assert main(["backtest", *arguments]) == 0
    return out


DETECTION_BEGIN = np.datetime64("2025-03-01T00:00:00", "ns")
DETECTION_CONFIG = """
[detection]
metrics = [
    { name = "cpu_usage", low = 0.0, high = 100.0 },
    { name = "power_draw", low = 0.0, high = 1000.0 },
]
activity = "gpu_duty_cycle"
"""
DETECTION_COLUMNS = ("cpu_usage", "power_draw", "gpu_duty_cycle")

Put = Callable[[SimulatedTask, Path, str], Path]


@pytest.fixture(scope="session")
def put() -> Put:
    """Return `put(task, metrics, name)`: write some metrics of a task where a pull is expected."""

    def write(task: SimulatedTask, metrics: Path, name: str) -> Path:
        folder = metrics / f"task={name}"
        folder.mkdir(parents=True, exist_ok=True)
        table = metrics_table(task, DETECTION_BEGIN)
        pq.write_table(
            table.select(["timestamp", "machine", *DETECTION_COLUMNS]), folder / "part-0.parquet"
        )
        return metrics

    return write


@pytest.fixture(scope="session")
def detection_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("detection") / "detection.toml"
    path.write_text(DETECTION_CONFIG)
    return path


@pytest.fixture(scope="session")
def healthy_metrics(put: Put, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    for number in range(14):
        generator = np.random.default_rng([9, number])
        put(healthy_task(generator, 4 + 3 * number, 900), folder, f"train-{number}")
    return folder


@pytest.fixture(scope="session")
def model(
    healthy_metrics: Path, detection_config: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("detector") / "model"
    options = ["--metrics", str(healthy_metrics), "--config", str(detection_config)]
    assert main(["detect", "fit", *options, "--model", str(folder)]) == 0
    return folder


def plain_fault(n: int, machine: int, start: int = 400, seed: int = 1) -> SimulatedTask:
    """Return a task of which one machine loses most of its power draw for good."""
    task = healthy_task(np.random.default_rng(seed), n, 900)
    task.samples["power_draw"][machine, start:] *= 0.35
    return task


@pytest.fixture(scope="session")
def fault() -> Callable[..., SimulatedTask]:
    return plain_fault


@pytest.fixture
def jitter() -> SimulatedTask:
    """Return a task in which node-0006 draws less power for a minute and a half, and is back."""
    task = healthy_task(np.random.default_rng(5), 10, 900)
    task.samples["power_draw"][6, 500:590] *= 0.4
    return task
