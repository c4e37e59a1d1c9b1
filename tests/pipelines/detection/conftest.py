"""Small random tasks with any metrics, cadence and groups."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from forewarn.features.time_units import SECOND
from forewarn.pipelines.cli.main import main

Put = Callable[..., None]
Commands = Callable[..., Any]
BEGIN = pd.Timestamp("2025-03-01T00:00:00Z").value


@pytest.fixture(scope="session")
def put_samples() -> Put:
    """Return `put(metrics, name, columns, ...)`: write a task, shape (n_machines, n_ticks) each.

    NaN is written as null; `late` seconds move the samples of a tick.
    """

    def write(
        metrics: Path,
        name: str,
        columns: Mapping[str, npt.NDArray[Any]],
        *,
        seconds: float = 1.0,
        groups: Sequence[str] | None = None,
        late: npt.NDArray[np.float64] | None = None,
    ) -> None:
        n, ticks = next(iter(columns.values())).shape
        time = np.tile(np.arange(ticks) * seconds, (n, 1)) + (0.0 if late is None else late)
        machines = np.array([f"n{i:02d}" for i in range(n)])
        nanoseconds = BEGIN + np.round(time.reshape(-1) * SECOND).astype(np.int64)
        table = pd.DataFrame({"timestamp": pd.to_datetime(nanoseconds, utc=True)})
        table["machine"] = np.repeat(machines, ticks)
        if groups is not None:
            table["group"] = np.repeat(np.array(groups), ticks)
        for metric, values in columns.items():
            table[metric] = values.reshape(-1)
        folder = metrics / f"task={name}"
        folder.mkdir(parents=True, exist_ok=True)
        table.to_parquet(folder / "part-0.parquet")

    return write


@pytest.fixture
def detect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """Return `detect(train, pulls, config)`: fit and run; verdicts by task, fit report, notes."""

    def called(
        train: Path, pulls: Path, config: str, *, name: str = "model"
    ) -> tuple[dict[str, Any], dict[str, Any], str]:
        path, model = tmp_path / f"{name}.toml", tmp_path / name
        path.write_text(f"[detection]\n{config}\n")
        capsys.readouterr()
        options = ["--config", str(path), "--model", str(model), "--json"]
        assert main(["detect", "fit", "--metrics", str(train), *options]) == 0
        fit = capsys.readouterr()
        options = ["--metrics", str(pulls), "--model", str(model), "--json"]
        assert main(["detect", "run", *options]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return {line["task"]: line for line in lines}, json.loads(fit.out), fit.err

    return called
