"""A folder called `run:1` works with every command, though pyarrow would parse it as a URI."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from forewarn.evaluation.simulation.tasks.task_simulator import SimulatedTask
from forewarn.pipelines.cli.main import main

OPTIONS = {"RECORDS": "--records run:1/records", "CONFIG": "--config run:1/small.toml"}
SMI = "timestamp, index, serial, uuid, pci.bus_id, name, temperature.gpu\n"
# Commands to run one after another, and a file that the last of them writes in `run:1`.
CHAINS = {
    "simulate fleet": (["simulate fleet --gpus 2 --days 1 --out run:1/fleet"], "fleet/truth.csv"),
    "compact": (["compact RECORDS CONFIG"], "records/date=2025-01-01/00-compacted.parquet"),
    "doctor": (["doctor run:1/records CONFIG --out run:1/doctor"], "doctor/doctor.json"),
    "backtest": (
        [
            "backtest RECORDS CONFIG --models gbdt --strategies sliding --start 2025-01-19"
            " --out run:1/backtest"
        ],
        "backtest/scores_sliding.parquet",
    ),
    "lists": (
        [
            "score RECORDS CONFIG --model builtin:rules --at 2025-01-03 --out run:1/lists",
            "review --at-risk run:1/lists --failures run:1/failures.csv",
            "policy replay RECORDS CONFIG --at-risk run:1/lists --html run:1/replay.html",
        ],
        "replay.html",
    ),
    "ingest": (
        ["ingest --raw run:1/raw --cmdb run:1/cmdb.parquet --out run:1/landed"],
        "landed/failures.parquet",
    ),
    "detect": (
        [
            "detect run --metrics run:1/metrics --model run:1/detector --plot run:1/plots",
        ],
        "plots",
    ),
    "diagnose": (
        [
            "simulate job --ranks 8 --fault machine --seed 1 --out run:1/job",
            "diagnose run --job run:1/job --html run:1/job.html",
        ],
        "job.html",
    ),
}


@pytest.fixture(scope="module")
def folder(
    records: Path, config: Path, model: Path, put: Callable[..., Path],
    fault: Callable[..., SimulatedTask], tmp_path_factory: pytest.TempPathFactory,
) -> Path:  # fmt: skip
    """Return a folder in which `run:1` holds the input of the commands."""
    above = tmp_path_factory.mktemp("colon")
    folder = above / "run:1"
    shutil.copytree(records, folder / "records")
    shutil.copy(config, folder / "small.toml")
    shutil.copytree(model, folder / "detector")
    put(fault(8, 3), folder / "metrics", "pull")
    (folder / "failures.csv").write_text("gpu_serial,failed_at\nS001,2025-01-03T05:00:00Z\n")
    pd.DataFrame({"gpu_serial": ["S0"], "rack": ["r1"]}).to_parquet(folder / "cmdb.parquet")
    (folder / "raw" / "node-0").mkdir(parents=True)
    rows = [f"2025/03/01 0{hour}:00:03.000, 0, S0, GPU-0, 00:01, H100, 40" for hour in range(4)]
    (folder / "raw" / "node-0" / "smi.csv").write_text(SMI + "\n".join(rows) + "\n")
    return above


@pytest.mark.parametrize("chain", CHAINS)
def test_folder_name_may_contain_colon(
    chain: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    commands, written = CHAINS[chain]
    for command in commands:
        for name, options in OPTIONS.items():
            command = command.replace(name, options)
        assert main(command.split()) == 0
    assert (folder / "run:1" / written).exists()
