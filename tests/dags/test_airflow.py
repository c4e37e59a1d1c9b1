"""Three retraining cycles, each followed by the daily lists, in Airflow through its API."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

from forewarn.models.prediction.trees import tree_model as trees
from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.airflow

DAGS = Path(__file__).parents[2] / "dags"
DAG_FILES = sorted(DAGS.glob("forewarn_*.py"))
GATED = Path(__file__).with_name("gated_airflow.py")
# The third cycle is the first that compares with a champion. Two lists suffice.
CYCLES = ("2025-01-16", "2025-01-19", "2025-01-22")
LISTS = 2
N_TREES = 60  # other tests cover the quality of models
KILLED_CYCLE, KILLED_LIST = "2025-01-19", "2025-01-23"
_PATIENCE = 300
_PAUSE = 1.0  # seconds between two requests, each as expensive as a page

Fleet = Callable[[int, int], pd.DataFrame]
Write = Callable[[pd.DataFrame, Path], Path]


@dataclass
class Airflow:
    """Scheduler, DAG processor and API server in a separate folder."""

    folder: Path
    config: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    client: httpx.Client = field(default_factory=httpx.Client)

    @property
    def environment(self) -> dict[str, str]:
        settings = {
            "CORE__DAGS_FOLDER": str(DAGS),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": "2",
            "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{self.port}/execution/",
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",  # DAGs do not change meanwhile
            # Three processes write to SQLite, whose default lock timeout is five seconds.
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.folder}/airflow.db?timeout=120",
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            # For busy machines: by default a task fails if the API does not answer for 5 s.
            "WORKERS__EXECUTION_API_TIMEOUT": str(_PATIENCE),
            "CORE__DAGBAG_IMPORT_TIMEOUT": str(_PATIENCE),
            "DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": str(_PATIENCE),
            "API_AUTH__JWT_SECRET": "a-secret-of-this-test-alone-and-long-enough",
        }
        named = {f"AIRFLOW__{name}": value for name, value in settings.items()}
        named["AIRFLOW_HOME"] = str(self.folder)
        named["AIRFLOW_VAR_FOREWARN_CONFIG"] = str(self.config)
        return os.environ | named | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def start(self) -> None:
        with (self.folder / "out").open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(GATED), str(self.folder), str(N_TREES)],
                env=self.environment,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=_PATIENCE)
        self.until(lambda: self.token() is not None)
        self.until(lambda: len(self.get("/dags")["dags"]) == len(DAG_FILES))
        pool = {"name": "forewarn_tensorflow", "slots": 1, "description": "one at a time"}
        self.ask("POST", "/pools", pool)

    def token(self) -> str | None:
        try:
            answer = self.client.get("/auth/token")
            token: str = answer.raise_for_status().json()["access_token"]
        except (httpx.HTTPError, ValueError):
            return None
        self.client.headers["Authorization"] = f"Bearer {token}"
        return token

    def stop(self) -> None:
        """Kill all services and their children: a regular stop waits for the workers."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.client.close()

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Call the API, and repeat calls that answer 500 (SQLite locked, change rolled back)."""
        answers: list[httpx.Response] = []

        def served() -> bool:
            answers.append(self.client.request(method, f"/api/v2{path}", json=body))
            return answers[-1].status_code != httpx.codes.INTERNAL_SERVER_ERROR

        self.until(served)
        return answers[-1].raise_for_status().json()

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def until(self, done: Callable[[], bool]) -> None:
        started = time.monotonic()
        while not done():
            assert self.process is not None
            assert self.process.poll() is None, self.folder
            if time.monotonic() - started > _PATIENCE:
                raise AssertionError(f"no result after {_PATIENCE} s: {self.folder}")
            time.sleep(_PAUSE)

    def wake(self, dag: str) -> None:
        """Unpause a DAG and fail the run that it starts for today: the records are older."""
        self.ask("PATCH", f"/dags/{dag}", {"is_paused": False})
        if dag != "forewarn_score":
            self.until(lambda: bool(self.runs(dag)))
            for run in self.runs(dag):
                path = f"/dags/{dag}/dagRuns/{run['dag_run_id']}"
                self.ask("PATCH", path, {"state": "failed"})

    def runs(self, dag: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(f"/dags/{dag}/dagRuns")["dag_runs"]
        return found

    def trigger(self, dag: str, conf: dict[str, str]) -> str:
        asked = {"conf": conf, "logical_date": None}
        number: str = self.ask("POST", f"/dags/{dag}/dagRuns", asked)["dag_run_id"]
        return number

    def state(self, dag: str, run: str) -> str:
        state: str = self.get(f"/dags/{dag}/dagRuns/{run}")["state"]
        return state

    def finish(self, dag: str, run: str) -> str:
        self.until(lambda: self.state(dag, run) in ("success", "failed"))
        return self.state(dag, run)

    def tasks(self, dag: str, run: str) -> dict[str, dict[str, Any]]:
        found = self.get(f"/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return {one["task_id"]: one for one in found}

    def hold(self) -> None:
        """Make the next task wait before its main step, where it can be killed."""
        (self.folder / "hold").touch()

    def kill(self, dag: str, run: str, task: str) -> None:
        """Kill the process of a waiting task with SIGKILL, then let other tasks continue."""
        self.until((self.folder / "reached").exists)
        assert self.tasks(dag, run)[task]["state"] == "running"
        number = self.tasks(dag, run)[task]["id"]
        pids = [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _title(entry) == f"airflow worker -- {number}"
        ]
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        (self.folder / "hold").unlink()
        (self.folder / "reached").unlink()


def _title(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


@pytest.fixture(scope="module")
def records(fleet_of: Fleet, write: Write, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(fleet_of(60, 30), tmp_path_factory.mktemp("fleet") / "records")


def site(records: Path, config_text: str, folder: Path) -> Path:
    """Write the configuration of a site that trains only trees; its paths are relative."""
    head, rest = config_text.split("[ensembles]")
    trees = '[ensembles]\nparallel = ["gbdt"]\ncascade = [["gbdt", 0.2]]\n'
    path = folder / "site.toml"
    path.write_text(
        f'{head}{trees}{rest[rest.index("[evaluation]") :]}\n[site]\nrecords = "{records}"\n'
    )
    return path


@pytest.fixture(scope="module")
def airflow(
    records: Path,
    config_text: str,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Airflow]:
    folder = tmp_path_factory.mktemp("airflow")
    running = Airflow(folder, site(records, config_text, folder), free_port())
    try:
        running.start()
        yield running
    finally:
        running.stop()


def days_after(cycle: str) -> list[str]:
    return [str((pd.Timestamp(cycle) + pd.Timedelta(days=n)).date()) for n in range(LISTS)]


@pytest.fixture(scope="module")
def scheduled(airflow: Airflow) -> dict[str, str]:
    """Run the cycles and the lists, kill two tasks meanwhile, and return the state of every run."""
    states = {}
    airflow.wake("forewarn_retrain")
    airflow.wake("forewarn_score")
    for cycle in CYCLES:
        if cycle == KILLED_CYCLE:
            airflow.hold()
        run = airflow.trigger("forewarn_retrain", {"at": cycle})
        if cycle == KILLED_CYCLE:
            airflow.kill("forewarn_retrain", run, "promote")
        states[cycle] = airflow.finish("forewarn_retrain", run)
        for day in days_after(cycle):
            if day == KILLED_LIST:
                airflow.hold()
            run = airflow.trigger("forewarn_score", {"day": day})
            if day == KILLED_LIST:
                airflow.kill("forewarn_score", run, "score")
            states[f"list {day}"] = airflow.finish("forewarn_score", run)
    return states


@pytest.fixture(scope="module")
def commanded(records: Path, config_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the same steps as commands, one after the other, in another folder."""
    folder = tmp_path_factory.mktemp("commands")
    config = site(records, config_text, folder)
    common = ["--records", str(records), "--config", str(config)]
    for cycle in CYCLES:
        command(folder, "retrain", *common, "--at", cycle)
        for day in days_after(cycle):
            at = str((pd.Timestamp(day) + pd.Timedelta(days=1)).date())
            lists = ["--model", "models:/gpu-failure@champion", "--out", str(folder / "lists")]
            command(folder, "score", *common, "--at", at, *lists)
    return folder / "lists"


def command(folder: Path, *arguments: str) -> None:
    with contextlib.chdir(folder), warnings.catch_warnings(), pytest.MonkeyPatch.context() as few:
        few.setattr(trees, "_N_TREES", N_TREES)
        warnings.simplefilter("ignore")  # of MLflow and Alembic
        assert main(arguments) == 0


def test_all_runs_succeed_even_with_killed_task(scheduled: dict[str, str]) -> None:
    assert len(scheduled) == len(CYCLES) * (1 + LISTS)
    assert set(scheduled.values()) == {"success"}


@pytest.mark.usefixtures("scheduled")
def test_lists_equal_command_output(airflow: Airflow, commanded: Path) -> None:
    ours = sorted(path.parent.name for path in commanded.glob("date=*/at_risk.csv"))
    assert len(ours) == len(CYCLES) * LISTS
    assert ours == sorted(p.name for p in (airflow.folder / "lists").glob("date=*"))
    for name in ours:
        folders = (airflow.folder / "lists" / name, commanded / name)
        versions = [set(pd.read_parquet(f / "at_risk.parquet")["model_version"]) for f in folders]
        for file in ("at_risk.csv", "at_risk.json", "at_risk.html", "unscored.csv"):
            texts = [(folder / file).read_text() for folder in folders]
            for place, (version,) in enumerate(versions):
                texts[place] = texts[place].replace(version, "VERSION")
            assert texts[0] == texts[1], (name, file)


@pytest.mark.usefixtures("scheduled")
def test_records_event_triggers_daily_list(airflow: Airflow) -> None:
    before = {run["dag_run_id"] for run in airflow.runs("forewarn_score")}
    (asset,) = [a for a in airflow.get("/assets")["assets"] if a["name"] == "forewarn_records"]
    event = {"asset_id": asset["id"], "extra": {"day": "2025-01-25"}}
    airflow.ask("POST", "/assets/events", event)
    airflow.until(lambda: len(airflow.runs("forewarn_score")) > len(before))
    (run,) = {one["dag_run_id"] for one in airflow.runs("forewarn_score")} - before
    assert airflow.finish("forewarn_score", run) == "success"
    assert (airflow.folder / "lists" / "date=2025-01-26" / "at_risk.html").exists()


@pytest.mark.usefixtures("scheduled")
def test_refused_champion_is_skipped_promotion(airflow: Airflow) -> None:
    run = airflow.trigger("forewarn_retrain", {"at": "2025-01-20"})  # before the champion's cutoff
    assert airflow.finish("forewarn_retrain", run) == "success"
    promote = airflow.tasks("forewarn_retrain", run)["promote"]
    assert (promote["state"], promote["try_number"]) == ("skipped", 1)


@pytest.mark.usefixtures("scheduled")
def test_day_without_records_fails_at_once(airflow: Airflow) -> None:
    run = airflow.trigger("forewarn_score", {"day": "2020-01-01"})
    assert airflow.finish("forewarn_score", run) == "failed"
    score = airflow.tasks("forewarn_score", run)["score"]
    assert (score["state"], score["try_number"]) == ("failed", 1)


def test_ingestion_publishes_day_that_is_complete(airflow: Airflow) -> None:
    airflow.ask("PATCH", "/dags/forewarn_ingest", {"is_paused": False})
    airflow.until(lambda: bool(airflow.runs("forewarn_ingest")))
    (first, *_) = airflow.runs("forewarn_ingest")
    assert airflow.finish("forewarn_ingest", first["dag_run_id"]) == "success"
    events = airflow.get("/assets/events?limit=100")["asset_events"]
    assert {"day": "2025-01-30"} in [event["extra"] for event in events]


def test_services_listen_on_loopback_only(airflow: Airflow) -> None:
    """The log server of a worker would listen on all interfaces; it is not started."""
    assert airflow.process is not None
    group = airflow.process.pid
    mine = {
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _group(int(entry.name)) == group
    }
    assert len(mine) > 3
    assert _listening(mine) == {f"0100007F:{airflow.port:04X}"}  # 127.0.0.1


def _listening(pids: set[str]) -> set[str]:
    """Return the addresses on which processes listen, in the kernel's notation."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # the process has ended
            sockets |= {os.readlink(entry) for entry in Path("/proc", pid, "fd").iterdir()}
    tables = [Path("/proc/net", name).read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}
