"""`forewarn up`: local Airflow and MLflow with a small, continuously simulated fleet."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pandas as pd

from forewarn.evaluation.simulation.fleet.fleet_simulator import simulate_fleet
from forewarn.features.errors import InputError
from forewarn.pipelines.runtime.interruption import interruptible
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["UpError", "run_up"]

_DAGS = Path(__file__).resolve().parents[2] / "dags"  # of the checkout, or of the installed wheel
_PAST_DAYS, _FUTURE_DAYS = 24, 3  # days simulated before and after now
_FEED_SECONDS = 60.0  # seconds between two feeds of new records
_START_TIMEOUT = 180.0
_TASK_SERVICES = {
    "scheduler": ("airflow", "scheduler", "--skip-serve-logs"),  # it would listen on all interfaces
    "dag-processor": ("airflow", "dag-processor"),
}
_SET_UP = """
import sys
from airflow.__main__ import main

for command in ("db migrate", "pools set forewarn_tensorflow 1 one"):
    sys.argv = ["airflow", *command.split()]
    main()
"""
_CONFIG = """# Written by `forewarn up`; relative paths start in this folder.
[site]
records = "records"
lists = "lists"
[registry]
store = "mlflow"
[ensembles]
parallel = ["gbdt", "mlp"]
cascade = [["gbdt", 0.05], ["mlp", 0.02]]
"""


class UpError(InputError):
    """The services cannot be started."""


@dataclass(frozen=True, slots=True)
class _Service:
    """A program in its own process group, so that its children end with it."""

    name: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            note(f"{self.name} did not stop and is killed")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def run_up(folder: Path, *, n_gpus: int, seed: int, airflow_port: int, mlflow_port: int) -> None:
    """Start all services, feed records as time passes, and stop everything at the end.

    Parameters
    ----------
    folder : Path
        For records, lists, the registry and Airflow's own files; kept afterwards.
    n_gpus, seed : int
        Size and seed of the fleet.
    airflow_port, mlflow_port : int
        Ports on loopback.

    Raises
    ------
    UpError
        If a port is in use, or a service does not start.
    """
    folder = folder.resolve()
    _check(airflow_port, mlflow_port)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "site.toml").write_text(_CONFIG, encoding="utf-8")
    days = _simulated(n_gpus, seed)
    days = _feed_records(folder / "records", days)
    environment = _environment(folder, airflow_port)
    _set_up_airflow(folder, environment)
    pages = {"api-server": ("airflow", "api-server"), "mlflow": _mlflow(folder, mlflow_port)}
    with interruptible(), _running(folder, environment, pages) as services:
        urls = {"Airflow": airflow_port, "MLflow": mlflow_port}
        for name, port in urls.items():
            _wait(f"http://127.0.0.1:{port}", name, services)
        # A task fails if the API server does not respond, so nothing starts tasks before.
        with _running(folder, environment, _TASK_SERVICES) as others:
            _print_addresses(folder, urls)
            while True:
                _require_alive([*services, *others])
                time.sleep(_FEED_SECONDS)
                days = _feed_records(folder / "records", days)


def _check(*ports: int) -> None:
    for port in ports:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            raise UpError(f"port {port} of 127.0.0.1 cannot be used ({error.strerror}).") from None


def _simulated(n_gpus: int, seed: int) -> dict[str, pd.DataFrame]:
    """Return simulated records of some days before and after now."""
    today = np.datetime64(pd.Timestamp.now("UTC").strftime("%Y-%m-%d"), "ns")
    start = today - np.timedelta64(_PAST_DAYS, "D")
    run = simulate_fleet(n_gpus=n_gpus, n_days=_PAST_DAYS + _FUTURE_DAYS, seed=seed, start=start)
    days = {}
    with progress_bar(_PAST_DAYS + _FUTURE_DAYS, "simulate", "day") as bar:
        for day in run:
            days[day.date] = day.records
            bar.update()
    return days


def _feed_records(records: Path, days: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Write the records up to now, day by day; return the days that are not complete yet."""
    now, left = pd.Timestamp.now("UTC"), {}
    for date, rows in days.items():
        recorded = rows[pd.to_datetime(rows["timestamp"], utc=True) < now]
        if len(recorded):
            with replacing(records / f"date={date}" / "part-0.parquet") as temporary:
                recorded.to_parquet(temporary, index=False)
        if pd.Timestamp(date, tz="UTC") + pd.Timedelta(days=1) > now:
            left[date] = rows
    return left


def _environment(folder: Path, port: int) -> dict[str, str]:
    settings = {
        "CORE__DAGS_FOLDER": str(_DAGS),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": "2",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        # Three processes write; SQLite's default timeout is five seconds.
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow/airflow.db?timeout=120",
        "WORKERS__EXECUTION_API_TIMEOUT": "60",  # on a busy machine; by default five seconds
        "API__HOST": "127.0.0.1",
        "API__PORT": str(port),
        "API__BASE_URL": f"http://127.0.0.1:{port}",
        "API_AUTH__JWT_SECRET": secrets.token_urlsafe(32),
    }
    named = {f"AIRFLOW__{name}": value for name, value in settings.items()}
    named["AIRFLOW_HOME"] = str(folder / "airflow")
    named["AIRFLOW_VAR_FOREWARN_CONFIG"] = str(folder / "site.toml")
    # MLflow's job workers are not used; each would load all of MLflow.
    named["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    return os.environ | named


def _mlflow(folder: Path, port: int) -> tuple[str, ...]:
    (folder / "mlflow").mkdir(exist_ok=True)
    store = f"sqlite:///{folder}/mlflow/mlflow.db"
    options = ("--backend-store-uri", store, "--host", "127.0.0.1", "--port", str(port))
    return ("mlflow", "server", "--workers", "1", *options)


def _set_up_airflow(folder: Path, environment: Mapping[str, str]) -> None:
    """Create Airflow's database and pool in one process, since loading Airflow takes seconds."""
    completed = subprocess.run(
        [sys.executable, "-c", _SET_UP],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode:
        last_line = (completed.stderr.strip().splitlines() or [""])[-1]
        raise UpError(f"airflow db migrate: {last_line[:200]}.")


@contextlib.contextmanager
def _running(
    folder: Path, environment: Mapping[str, str], commands: Mapping[str, Sequence[str]]
) -> Iterator[list[_Service]]:
    """Start programs, and stop each of them with all its children."""
    services: list[_Service] = []
    (folder / "logs").mkdir(exist_ok=True)
    try:
        for name, arguments in commands.items():
            with (folder / "logs" / f"{name}.log").open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", *arguments],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            services.append(_Service(name, process))
        yield services
    finally:
        for service in reversed(services):
            service.stop()


def _require_alive(services: Sequence[_Service]) -> None:
    for service in services:
        if service.process.poll() is not None:
            raise UpError(f"{service.name} ended unexpectedly; see its log in the logs folder.")


def _wait(url: str, name: str, services: Sequence[_Service]) -> None:
    """Wait until a service responds."""
    started = time.monotonic()
    while time.monotonic() - started < _START_TIMEOUT:
        _require_alive(services)
        try:
            httpx.get(url, timeout=5, trust_env=False)  # loopback, regardless of proxies
        except httpx.TransportError:
            time.sleep(0.5)
        else:
            return  # it responds, possibly with an error
    raise UpError(f"{name} does not respond at {url} after {_START_TIMEOUT:g} s.")


def _print_addresses(folder: Path, urls: Mapping[str, int]) -> None:
    """Print the addresses and how to log in."""
    for name, port in urls.items():
        sys.stdout.write(f"{name:8} http://127.0.0.1:{port}\n")
    passwords = folder / "airflow" / "simple_auth_manager_passwords.json.generated"
    if passwords.exists():
        for user, password in json.loads(passwords.read_text(encoding="utf-8")).items():
            sys.stdout.write(f"login    {user} {password}\n")
    sys.stdout.write(f"folder   {folder}: records, lists, mlflow, logs\n")
    sys.stdout.write("Ctrl-C stops everything.\n")
    sys.stdout.flush()
