"""Airflow's scheduler for tests: `gated_scheduler.py FOLDER TREES COMMAND...`.

It imports once what tasks need: its workers are forks, and so are the processes of their tasks,
which find the imports done. A model gets as many trees as TREES says. While FOLDER holds a file
`hold`, a task writes `reached` before one of the steps `HELD` and waits, so that a test can kill it
in the midst of its work, however fast it is.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from forewarn.models.prediction.trees import base

HELD = (
    ("forewarn.pipelines.training.retrain", "_register"),
    ("forewarn.pipelines.at_risk.score", "score_with"),
)
IMPORTED = (
    *("forewarn.pipelines.training.mlflow_model", "forewarn.pipelines.ingest.host_files"),
    *("mlflow.pyfunc", "mlflow.models", "mlflow.store.tracking.sqlalchemy_store"),
    *("lightgbm", "sklearn.linear_model", "alembic.command"),
)


def hold(module: ModuleType, name: str, folder: Path) -> None:
    """Let a function wait while the gate is shut."""
    step = getattr(module, name)

    def held(*arguments: Any, **options: Any) -> Any:
        while (folder / "hold").exists():
            (folder / "reached").write_text(str(os.getpid()))
            time.sleep(0.1)
        return step(*arguments, **options)

    setattr(module, name, held)


if __name__ == "__main__":
    gate, trees, *sys.argv[1:] = sys.argv[1:]
    for name in IMPORTED:
        importlib.import_module(name)
    for module, step in HELD:
        hold(importlib.import_module(module), step, Path(gate))
    base._TREES = int(trees)
    importlib.import_module("airflow.__main__").main()
