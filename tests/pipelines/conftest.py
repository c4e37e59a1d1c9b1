"""A small hourly fleet whose failures announce themselves, and one backtest of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

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
    from forewarn.pipelines.cli.main import main

    out = tmp_path_factory.mktemp("backtest")
    arguments = ["--records", str(records), "--config", str(config), "--out", str(out)]
    assert main(["backtest", *arguments]) == 0
    return out
