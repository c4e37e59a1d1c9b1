from __future__ import annotations

import contextlib
import gc
import itertools
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

# Read when numpy is first imported, and by every process that a test starts. Matrices of tests are
# small, and other tests use the other cores: a second OpenBLAS thread spins while it waits, which
# costs ten times the computation itself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import httpx
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

# Read by libraries on first import: no start-up messages of TensorFlow, no window.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")

# No example fails by its run time, or by the time to generate it.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# CI runs the same examples every time, so that a red build is reproducible; local runs vary.
settings.register_profile("default", UNTIMED)
settings.register_profile("ci", UNTIMED, derandomize=True, database=None)
# For parsers of host data, run occasionally: pytest --hypothesis-profile=thorough tests/...
settings.register_profile("thorough", UNTIMED, max_examples=10_000)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# Collected objects live until the end: garbage collection meanwhile takes a fifth of the time.
gc.disable()

ROOT = Path(__file__).parent
# All tests of such a folder run in one worker, because they share what is created once per session:
# an API server of Kubernetes costs 15 seconds of CPU in each worker that starts one, and a fitted
# detector 5. Inspections of machines of one name exclude each other on this machine.
SESSION_FOLDERS = (
    "pipelines/incidents/schedulers/kubernetes",
    "pipelines/incidents/schedulers/slurm",
    "pipelines/detection",
    "pipelines/inspection",
)
# Longest test files, longest first: they start early, so that no worker is left with one at the
# end. Some of them wait in real time while another one works.
LONGEST = (
    *("dags/test_airflow.py", "pipelines/collector/test_site.py"),
    *("pipelines/sandbox/test_local_services.py", "pipelines/training/test_retrain_robustness.py"),
    *("pipelines/incidents/ledger/test_crash_recovery.py", "pipelines/training/test_retrain.py"),
    *("pipelines/ingest/test_prometheus_client.py", "pipelines/collector/test_crash_recovery.py"),
    *("pipelines/studies/test_detection_study.py", "pipelines/backtest/test_backtest_run.py"),
    *("pipelines/studies/test_prediction_study.py", "pipelines/runtime/test_executor.py"),
    *("pipelines/backtest/test_resume.py", "pipelines/studies/test_response_study.py"),
    *(
        "models/prediction/test_contract.py",
        "pipelines/at_risk/test_round_trip.py",
        "pipelines/at_risk/test_fleet_scoring.py",
    ),
    *("models/detection/test_detector.py", "real_data/test_azure.py"),
    "evaluation/simulation/fleet/test_fleet_simulator.py",
    *("models/prediction/networks/test_network_model.py", "models/detection/test_denoiser.py"),
    "pipelines/ingest/test_landing.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with SESSION_FOLDERS, then the longest files."""
    rank = {name: number for number, name in enumerate((*SESSION_FOLDERS, *LONGEST))}

    def key(item: pytest.Item) -> int:
        path = item.path.relative_to(ROOT)
        return min(rank.get(name.as_posix(), len(rank)) for name in (path, path.parent))

    items.sort(key=key)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let each worker run a whole file, or a whole folder of SESSION_FOLDERS."""
    if config.getoption("dist") != "loadfile":
        return None
    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    def scope(test: str) -> str:
        folder = file_of(test).removeprefix("tests/").rpartition("/")[0]
        return folder if folder in SESSION_FOLDERS else str(file_of(test))

    scheduler._split_scope = scope
    return scheduler


def pytest_collection_finish() -> None:
    """Collect garbage again, only among objects of tests."""
    gc.freeze()
    gc.enable()


def skip_or_fail(reason: str) -> NoReturn:
    """Skip, or fail if FOREWARN_REQUIRE_SYSTEM=1 requires all system programs."""
    if os.environ.get("FOREWARN_REQUIRE_SYSTEM") == "1":
        pytest.fail(f"{reason} (FOREWARN_REQUIRE_SYSTEM=1)")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def require_program() -> Callable[[str, str], Path]:
    """Return `find(command, debian_package)`: the path of a system program, or a skip."""

    def find(command: str, package: str) -> Path:
        found = shutil.which(command)
        if found is None:
            skip_or_fail(f"`{command}` is not installed: apt-get install {package}")
        return Path(found)

    return find


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Return `free_port()`: a loopback port that no other test gets before it is used.

    The system assigns ephemeral ports from 32768 on; below that, each test process has forty ports
    of its own.
    """
    first = 10_000 + os.getpid() % 500 * 40
    ports = itertools.chain(range(first, first + 40), range(31_000, 32_000))

    def find() -> int:
        for port in ports:
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
                return port
        raise AssertionError("no port of loopback is free")

    return find


@pytest.fixture(scope="module")
def prometheus_over(
    require_program: Callable[[str, str], Path],
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Path], str]]:
    """Return `prometheus_over(text)`: the address of a server with the samples of a text."""
    servers = []

    def start(text: Path) -> str:
        folder = tmp_path_factory.mktemp("prometheus")
        make = [str(require_program("promtool", "prometheus")), "tsdb", "create-blocks-from"]
        # The text is read once per block.
        make += ["--max-block-duration=300h", "openmetrics", str(text), str(folder / "data")]
        subprocess.run(make, check=True, capture_output=True)
        (folder / "prometheus.yml").write_text("global: {}\n")
        address = f"127.0.0.1:{free_port()}"
        options = [
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address={address}",
        ]
        with (folder / "out").open("wb") as out:
            program = str(require_program("prometheus", "prometheus"))
            servers.append(subprocess.Popen([program, *options], stdout=out, stderr=out))
        for _ in range(600):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://{address}/-/ready", trust_env=False).status_code == 200:
                    return f"http://{address}"
            time.sleep(0.1)
        raise AssertionError("Prometheus does not come up")

    yield start
    for server in servers:
        server.terminate()
        server.wait(300)


@pytest.fixture(scope="session")
def check_metrics(require_program: Callable[[str, str], Path]) -> Callable[[str], None]:
    """Return `check_metrics(text)`: promtool accepts the text without a remark."""

    def check(text: str) -> None:
        promtool = str(require_program("promtool", "prometheus"))
        command = [promtool, "check", "metrics"]
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, ""), text

    return check


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of the shared data sets next to the repository, or skip."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        skip_or_fail("the shared data sets are not there: expected ../shared/data")
    return folder


# --- a small hourly fleet ------------------------------------------------------------------------

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
linear = 0.5
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
    """Write one file per date."""
    for date, rows in frame.groupby(frame["timestamp"].dt.date):
        partition = folder / f"date={date}"
        partition.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(partition / "part-0.parquet", index=False)
    return folder


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
