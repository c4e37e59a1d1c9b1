"""Airflow for tests: `gated_airflow.py FOLDER TREES` runs its three services.

The parent imports all modules once. Services and task processes are forks of it, so they need not
import again. TREES is the number of trees of each model. While FOLDER contains a file `hold`, a
task writes `reached` before a step in `HELD` and waits, so that a test can kill it at that point.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from forewarn.models.prediction.trees import tree_model

HELD = (
    ("forewarn.pipelines.training.retrain", "_register"),
    ("forewarn.pipelines.at_risk.fleet_scoring", "score_with"),
)
IMPORTED = (
    *("forewarn.pipelines.training.mlflow_model", "forewarn.pipelines.ingest.host_file_ingest"),
    *("mlflow.pyfunc", "mlflow.models", "mlflow.store.tracking.sqlalchemy_store"),
    *("lightgbm", "sklearn.linear_model", "alembic.command"),
    *("airflow.cli.commands.api_server_command", "airflow.api_fastapi.app"),
    *("airflow.api_fastapi.core_api.app", "airflow.api_fastapi.core_api.routes.public"),
    *("airflow.api_fastapi.core_api.routes.ui", "airflow.api_fastapi.execution_api.app"),
    *("airflow.cli.commands.scheduler_command", "airflow.jobs.scheduler_job_runner"),
    *("airflow.cli.commands.dag_processor_command", "airflow.cli.commands.db_command"),
    *("airflow.executors.local_executor", "airflow.utils.db"),
)
SERVICES = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
}


def hold(module: ModuleType, name: str, folder: Path) -> None:
    """Let a function wait while the file `hold` exists."""
    step = getattr(module, name)

    def held(*arguments: Any, **options: Any) -> Any:
        while (folder / "hold").exists():
            (folder / "reached").write_text(str(os.getpid()))
            time.sleep(0.1)
        return step(*arguments, **options)

    setattr(module, name, held)


def fork(folder: Path, name: str, *arguments: str) -> int:
    """Run an Airflow command in a child process and return its process ID."""
    child = os.fork()
    if child == 0:
        with (folder / f"{name}.out").open("wb") as out:
            os.dup2(out.fileno(), sys.stdout.fileno())
            os.dup2(out.fileno(), sys.stderr.fileno())
        sys.argv = ["airflow", *arguments]
        sys.exit(importlib.import_module("airflow.__main__").main())
    return child


def serve(folder: Path) -> None:
    """Run all services until one ends; killing the process group ends all of them."""
    gc.freeze()  # forks do not collect garbage in shared memory
    os.waitpid(fork(folder, "migration", "db", "migrate"), 0)
    for name, arguments in SERVICES.items():
        fork(folder, name, *arguments)
    os.wait()


if __name__ == "__main__":
    gate, trees = sys.argv[1:]
    for name in IMPORTED:
        importlib.import_module(name)
    for module, step in HELD:
        hold(importlib.import_module(module), step, Path(gate))
    tree_model._N_TREES = int(trees)
    serve(Path(gate))
