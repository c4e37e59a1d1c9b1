"""Watching running tasks: in growing files, and in a real Prometheus with two outages."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from forewarn.evaluation.simulation.tasks.task_simulator import SimulatedTask, healthy_task
from forewarn.features.detection.sampling import Sampling
from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND
from forewarn.models.detection.detector_file import load_detector
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import WatchTable
from forewarn.pipelines.detection.detection_watch import DetectionWatch
from forewarn.pipelines.detection.live_metrics import LiveMetrics
from forewarn.pipelines.ingest.prometheus_client import PrometheusClient

Put = Callable[[SimulatedTask, Path, str], Path]
Fault = Callable[..., SimulatedTask]
Capture = pytest.CaptureFixture[str]

MACHINES = 64
STEP = 60  # seconds between two calls
HOURS_AGO = 6


@dataclass
class Steps:
    """A clock controlled by a test: each wait is a step and can trigger an event."""

    time: int
    until: int
    happens: dict[int, Callable[[], None]] = field(default_factory=dict)
    steps: int = 0

    def now(self) -> int:
        return self.time

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.time += round(seconds * SECOND)
        self.steps += 1
        self.happens.get(self.steps, lambda: None)()
        if self.time >= self.until:
            until.set()
        return until.is_set()


@dataclass
class Prometheus:
    """A Prometheus server with prepared blocks."""

    program: Path
    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = self.folder / "prometheus.yml"
        config.write_text("global: {}\n")
        self.process = subprocess.Popen(
            [
                str(self.program),
                f"--config.file={config}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        started = time.monotonic()
        while time.monotonic() - started < 300:
            try:
                if httpx.get(f"{self.url}/-/ready").status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise AssertionError("prometheus does not come up")

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(300)
            self.process = None


def open_metrics(tasks: dict[str, SimulatedTask], begin: int) -> Iterator[str]:
    """Write samples as exporters would expose them, family by family."""
    for name in ("cpu_usage", "power_draw", "gpu_duty_cycle", "joules"):
        yield f"# TYPE {name} {'unknown' if name == 'joules' else 'gauge'}\n"
        for job, task in tasks.items():
            for machine, group, row in zip(
                task.machines, task.group, task.samples[name], strict=True
            ):
                labels = f'{{job="node",task="{job}",machine="{machine}",group="{group}"}}'
                for second, value in enumerate(row):
                    if np.isfinite(value):
                        yield f"{name}{labels} {value:.3f} {begin + second}\n"
    yield "# EOF\n"


@pytest.fixture(scope="module")
def jobs(fault: Fault) -> dict[str, SimulatedTask]:
    good = healthy_task(np.random.default_rng(3), 16, 900)
    tasks = {"good": good, "bad": fault(MACHINES - 16, 5, start=420, seed=8)}
    for task in tasks.values():
        total = 1e15 + np.cumsum(joules(task), axis=1)
        task.samples["joules"] = total  # type: ignore[assignment]  # float32 could not count them
    return tasks


def joules(task: SimulatedTask) -> npt.NDArray[np.float64]:
    """Return whole joules per second."""
    watts = np.nan_to_num(task.samples["power_draw"].astype(np.float64))
    return np.asarray(np.round(watts))


@pytest.fixture(scope="module")
def begin() -> int:
    return int(time.time()) // 7200 * 7200 - HOURS_AGO * 3600


@pytest.fixture(scope="module")
def prometheus(
    require_program: Callable[[str, str], Path],
    jobs: dict[str, SimulatedTask],
    begin: int,
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    text = folder / "metrics.txt"
    text.write_text("".join(open_metrics(jobs, begin)))
    tool = require_program("promtool", "prometheus")
    make = [str(tool), "tsdb", "create-blocks-from", "openmetrics", str(text)]
    subprocess.run([*make, str(folder / "data")], check=True, capture_output=True)
    server = Prometheus(require_program("prometheus", "prometheus"), folder, free_port())
    server.start()
    yield server
    server.stop()


def watched(
    prometheus: Prometheus, model: Path, begin: int, happens: dict[int, Callable[[], None]]
) -> list[dict[str, Any]]:
    stored = load_detector(model)
    settings = WatchTable.model_validate({"every": f"{STEP}s", "selector": 'job="node"'})
    clock = Steps((begin + 330) * SECOND, (begin + 905) * SECOND, happens)
    with closing(PrometheusClient(prometheus.url)) as server:
        live = LiveMetrics(server, settings, stored.interval)
        watch = DetectionWatch(stored, settings, live, clock=clock)
        return list(watch.run(threading.Event()))


def test_fault_is_reported_once_despite_outages(
    prometheus: Prometheus, model: Path, begin: int, capsys: Capture
) -> None:
    quiet = watched(prometheus, model, begin, {})
    happens = {2: prometheus.stop, 3: prometheus.start, 6: prometheus.stop, 7: prometheus.start}
    broken = watched(prometheus, model, begin, happens)
    assert "cannot be reached" in capsys.readouterr().err
    for found in (quiet, broken):
        (line,) = found
        assert (line["task"], line["machine"]) == ("bad", "node-0005")
        assert line["metric"] == "power_draw"
        since = pd.Timestamp(line["since"]).timestamp() - begin
        assert 400 <= since <= 450
    assert quiet[0]["detected_at"] == broken[0]["detected_at"]


def test_table_assigns_machines_to_tasks(
    prometheus: Prometheus, begin: int, jobs: dict[str, SimulatedTask], tmp_path: Path
) -> None:
    table = tmp_path / "tasks.csv"
    lines = [f"late,{name},{i % 2}" for i, name in enumerate(jobs["bad"].machines[:20])]
    table.write_text("\n".join(["task,machine,group", *lines, "other,elsewhere,"]))
    settings = WatchTable(task_label="absent", selector='task="bad"')
    with closing(PrometheusClient(prometheus.url)) as server:
        live = LiveMetrics(server, settings, SECOND, table)
        end = (begin + 899) * SECOND
        (pull,) = live.pulls("cpu_usage", end, 900 * SECOND)
        assert pull.name == "late"
        assert pull.grid.machines == jobs["bad"].machines[:20]
        assert pull.groups.tolist() == [0, 1] * 10
        # A machine that joins later is compared only from then on.
        table.write_text("\n".join(["task,machine,group", *lines, "late,node-0030,0"]))
        (pull,) = live.pulls("cpu_usage", end, 900 * SECOND)
        assert "node-0030" not in pull.grid.machines
        table.write_text("task,machine\nlate,node-0000\nlater,node-0000\n")
        with pytest.raises(InputError, match="machine 'node-0000' occurs twice"):
            list(live.pulls("cpu_usage", end, 900 * SECOND))


def test_prometheus_matches_files(
    prometheus: Prometheus,
    begin: int,
    jobs: dict[str, SimulatedTask],
    put: Put,
    tmp_path: Path,
) -> None:
    from forewarn.pipelines.detection.task_metrics import open_pull

    put(jobs["bad"], tmp_path, "bad")
    filed = open_pull(tmp_path / "task=bad", SECOND)
    with closing(PrometheusClient(prometheus.url)) as server:
        live = LiveMetrics(server, WatchTable(), SECOND)
        (bad, good) = live.pulls("cpu_usage", (begin + 899) * SECOND, 900 * SECOND)
        assert (bad.name, good.name) == ("bad", "good")
        assert bad.grid.machines == filed.grid.machines
        ours, theirs = bad.series("power_draw"), filed.series("power_draw")
        assert ours is not None
        assert theirs is not None
        assert np.allclose(ours, theirs, atol=1e-3, equal_nan=True)
        assert bad.series("disk") is None


def test_prometheus_counter_is_its_increase(
    prometheus: Prometheus, begin: int, jobs: dict[str, SimulatedTask]
) -> None:
    sampling = Sampling(counters=frozenset({"joules"}))
    with closing(PrometheusClient(prometheus.url)) as server:
        live = LiveMetrics(server, WatchTable(), SECOND, sampling=sampling)
        (bad, _) = live.pulls("joules", (begin + 899) * SECOND, 900 * SECOND)
        series = bad.series("joules")
        assert series is not None
        assert (series[:, 1:] == joules(jobs["bad"])[:, 1:]).all()
        assert (series[:, 0] == series[:, 1]).all()
        assert (bad.unit("joules"), bad.unit("power_draw")) == ("per 1 s", None)


def test_once_watches_server_once(prometheus: Prometheus, model: Path, capsys: Capture) -> None:
    options = ["--prometheus", prometheus.url, "--model", str(model), "--once", "--json"]
    assert main(["detect", "watch", *options]) == 0
    assert capsys.readouterr().out == ""  # no task runs now


def test_unreachable_server_is_one_line(model: Path, capsys: Capture) -> None:
    options = ["--prometheus", "http://127.0.0.1:9", "--model", str(model), "--once"]
    assert main(["detect", "watch", *options]) == 2
    assert "cannot be reached" in capsys.readouterr().err


def test_growing_files_report_each_verdict_once(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    metrics, state = tmp_path / "m", tmp_path / "state"
    put(fault(10, 4), metrics, "job")
    path = metrics / "task=job" / "part-0.parquet"
    whole = pd.read_parquet(path)
    printed = []
    for seconds in (300, 600, 700, 800, 900):
        end = whole["timestamp"].min() + pd.Timedelta(seconds=seconds)
        whole[whole["timestamp"] < end].to_parquet(path)
        options = ["--metrics", str(metrics), "--model", str(model), "--state", str(state)]
        capsys.readouterr()
        assert main(["detect", "watch", *options, "--once", "--json"]) == 0
        printed.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    named = [[line["machine"] for line in call] for call in printed]
    assert [name for call in named for name in call] == ["node-0004"]
    assert named[0] == []
    assert named[3] == named[4] == []


def test_jitter_is_noted_once(
    put: Put, jitter: SimulatedTask, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(jitter, tmp_path, "job")
    watch = DetectionWatch(load_detector(model), WatchTable(), tmp_path)
    said = []
    for _ in range(2):
        assert list(watch.call()) == []
        said.append([line for line in capsys.readouterr().err.splitlines() if "node-0006" in line])
    (line,) = said[0]
    said_of = re.search(r"job: node-0006 deviated on power_draw for (\d+) s and recovered", line)
    assert said_of is not None
    assert 20 <= int(said_of[1]) <= 110
    assert said[1] == []


def test_excess_of_verdicts_is_noted_once(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    metrics, state = tmp_path / "m", tmp_path / "state"
    options = ["--metrics", str(metrics), "--model", str(model), "--state", str(state), "--once"]

    def called() -> tuple[int, list[str]]:
        """Run a new watch once; return verdicts and notes about the alarm rate."""
        capsys.readouterr()
        assert main(["detect", "watch", *options, "--json"]) == 0
        printed = capsys.readouterr()
        return len(printed.out.splitlines()), [
            line for line in printed.err.splitlines() if "false alarm" in line
        ]

    put(healthy_task(np.random.default_rng(71), 10, 900), metrics, "calm")
    assert called() == (0, [])
    put(fault(10, 4), metrics, "first")
    n_verdicts, (line,) = called()
    assert n_verdicts == 1
    assert (
        "1 verdict in 0.0208 task-days, more than the requested rate of 0.02 false alarms a day"
        in line
    )
    assert called() == (0, [])
    put(fault(12, 3, seed=6), metrics, "second")
    n_verdicts, (line,) = called()
    assert n_verdicts == 1
    assert "2 verdicts in 0.0312 task-days" in line
    # With a high requested rate, two alarms are not too many.
    described = json.loads((model / "detector.json").read_text())
    described["facts"]["false_alarms"] = 50.0
    frequent = tmp_path / "frequent"
    shutil.copytree(model, frequent)
    (frequent / "detector.json").write_text(json.dumps(described))
    options[3], options[5] = str(frequent), str(tmp_path / "other")
    assert called() == (2, [])
