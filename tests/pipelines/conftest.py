"""A small hourly fleet with a backtest; running tasks with a detector fitted to them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Connection, event, inspect

from forewarn.evaluation.simulation.tasks.task_simulator import SimulatedTask, healthy_task
from forewarn.models.prediction.networks import network_training
from forewarn.models.prediction.trees import tree_model as trees
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.site_tables import RegistryTable
from forewarn.pipelines.incidents.ledger import database
from forewarn.pipelines.incidents.ledger.database import OpenMode
from forewarn.pipelines.sandbox.simulate_tasks import metrics_table


@contextmanager
def training_briefly() -> Iterator[None]:
    """Train small models briefly; their quality is tested in `tests/models`."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trees, "_N_TREES", 60)
        for name, epochs in (("_MAX_EPOCHS", 3), ("_MIN_EPOCHS", 2), ("_FIXED_EPOCHS", 2)):
            patched.setattr(network_training, name, epochs)
        yield


@pytest.fixture(scope="module", autouse=True)
def short_training() -> Iterator[None]:
    """Restrict brief training to these tests, because a worker runs other folders too."""
    with training_briefly():
        yield


class _Migrations:
    """Migration of an empty database: its statements are recorded once, and repeated later."""

    CHANGES = ("CREATE", "ALTER", "INSERT", "UPDATE", "DELETE", "DROP")

    def __init__(self) -> None:
        self.migrate = database._migrate
        self.recorded: dict[str, list[tuple[str, Any]]] = {}

    def __call__(self, connection: Connection, opening: OpenMode) -> None:
        if opening is OpenMode.EXISTING or inspect(connection).get_table_names():
            self.migrate(connection, opening)
        elif statements := self.recorded.get(connection.dialect.name):
            for statement, values in statements:
                connection.exec_driver_sql(statement, values or None)
        else:
            self.record(connection, opening)

    def record(self, connection: Connection, opening: OpenMode) -> None:
        statements: list[tuple[str, Any]] = []

        def note(_: object, __: object, statement: str, values: Any, *___: object) -> None:
            if statement.lstrip().upper().startswith(self.CHANGES):
                statements.append((statement, values))

        event.listen(connection, "before_cursor_execute", note)
        self.migrate(connection, opening)
        event.remove(connection, "before_cursor_execute", note)
        self.recorded[connection.dialect.name] = statements


@pytest.fixture(scope="session", autouse=True)
def migrations_once() -> Iterator[None]:
    """Run the migrations on the first empty ledger of a worker: they take most of many tests."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "_migrate", _Migrations())
        yield


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Return `close(folder)`, which makes a folder unlistable, except for root."""
    listdir = os.listdir

    def closed(folder: Path) -> None:
        def refused(path: Any) -> list[str]:
            if Path(path) == folder:
                raise PermissionError(13, "Permission denied", str(path))
            return listdir(path)

        monkeypatch.setattr(os, "listdir", refused)

    return closed


@pytest.fixture(scope="session")
def fleet(fleet_of: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    return fleet_of()


@pytest.fixture(scope="session")
def records(
    fleet: pd.DataFrame,
    write: Callable[[pd.DataFrame, Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    return write(fleet, tmp_path_factory.mktemp("fleet") / "records")


@pytest.fixture(scope="session")
def config(config_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "small.toml"
    path.write_text(config_text)
    return path


@pytest.fixture(scope="session")
def backtest(records: Path, config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("backtest")
    arguments = ["--records", str(records), "--config", str(config), "--out", str(out)]
    with training_briefly():  # created before the fixture of the requesting module
        assert main(["backtest", *arguments]) == 0
    return out


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the database of an empty registry; creating its tables takes seconds."""
    from forewarn.pipelines.storage.registry.model_registry import Registry

    folder = tmp_path_factory.mktemp("empty")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from MLflow and Alembic
        Registry(RegistryTable(store=str(folder)), create=True).versions()
    return (folder / "mlflow.db").read_bytes()


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
    """Return `put(task, metrics, name)`, which writes metrics of a task as a pull."""

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
    """Return a task in which one machine permanently loses most of its power draw."""
    task = healthy_task(np.random.default_rng(seed), n, 900)
    task.samples["power_draw"][machine, start:] *= 0.35
    return task


@pytest.fixture(scope="session")
def fault() -> Callable[..., SimulatedTask]:
    return plain_fault


@pytest.fixture
def jitter() -> SimulatedTask:
    """Return a task in which node-0006 draws less power for a minute and a half."""
    task = healthy_task(np.random.default_rng(5), 10, 900)
    task.samples["power_draw"][6, 500:590] *= 0.4
    return task
