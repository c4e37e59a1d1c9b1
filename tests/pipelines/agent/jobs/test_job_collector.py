"""Data saved of training jobs: real processes, and a small replacement of torch's server."""

from __future__ import annotations

import json
import os
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.pipelines.stopping import StoppingAfterTwo

from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.agent.jobs.job_collector import JobCollector
from forewarn.pipelines.agent.jobs.log_copier import LogCopier
from forewarn.pipelines.agent.jobs.training_processes import JobProcess, find_processes
from forewarn.pipelines.agent.jobs.worker_servers import oldest_unfinished
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.agent_policy import JobsTable
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.runtime.clock import SystemClock

TRACEBACK = """Thread 0x01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
Current thread 0x02 [pt_main_thread] (most recent call first):
  File "/lib/torch/distributed/distributed_c10d.py", line 4551 in barrier
  File "train.py", line 9 in <module>
"""
# Writes a line, starts a loader that inherits its environment, and waits.
PROGRAM = (
    "import subprocess, sys\n"
    "print('2026-11-22 10:00:00,000 step 1', flush=True)\n"
    "subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])\n"
)


def entry(number: int, began: int, *, done: bool) -> dict[str, Any]:
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": began,
        "state": "completed" if done else "started",
        "retired": done,
        "is_p2p": False,
    }


class Torch(BaseHTTPRequestHandler):
    """Worker server of a waiting rank."""

    waits_since = 0

    def do_POST(self) -> None:
        began = Torch.waits_since
        entries = [entry(1, began - SECOND, done=True), entry(2, began, done=False)]
        answers = {
            "/handler/fr_trace_json": json.dumps({"version": "2.10", "entries": entries}),
            "/handler/dump_traceback": TRACEBACK,
        }
        body = answers[self.path].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def address_string(self) -> str:
        return "a socket"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "worker.sock"
    Torch.waits_since = time.time_ns() - MINUTE
    with socketserver.ThreadingUnixStreamServer(str(path), Torch) as torch:
        thread = threading.Thread(target=torch.serve_forever, args=(0.01,))
        thread.start()
        yield path
        torch.shutdown()
        thread.join()


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Start a rank below torchrun's tree and return its log."""
    processes = []

    def start(rank: int, **environment: str) -> Path:
        log = tmp_path / "run" / "attempt_0" / str(rank) / "stdout.log"
        log.parent.mkdir(parents=True)
        variables = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), **environment}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=variables,
            )
        processes.append(process)
        while not log.stat().st_size:
            assert process.poll() is None, "it ended before it said anything"
            time.sleep(0.01)
        return log

    yield start
    for process in processes:
        process.communicate()


@dataclass
class SetClock(SystemClock):
    """A clock that only a test moves."""

    moment: int

    def now(self) -> int:
        return self.moment


def collector(folder: Path, **policy: Any) -> JobCollector:
    table = JobsTable.model_validate({"timeout": "60s", "ask_every": "30s", **policy})
    return JobCollector(table, folder, "node-1", SystemClock(), lambda _: None)


def test_collected_folder_is_readable_by_diagnosis(
    tmp_path: Path, train: Callable[..., Path], server: Path
) -> None:
    name = f"llm/7b-{os.getpid()}"
    log = train(0, FOREWARN_JOB=name, TORCH_WORKER_SERVER_SOCKET=str(server))
    (log.parent / "error.json").write_text('{"message": "x"}')
    jobs = collector(tmp_path / "jobs", stacks="server")
    assert jobs.collect() >= 1
    folder = tmp_path / "jobs" / name.replace("/", "_")
    assert (folder / "logs/node-1/attempt_0/0/stdout.log").read_bytes() == log.read_bytes()
    assert (folder / "logs/node-1/attempt_0/0/error.json").exists()
    reading = read_job(folder)
    assert set(reading.parts) == {"logs", "flight", "stacks", "kernel"}
    assert [row.machine for row in reading.listed.table.values()] == ["node-1"]
    case, verdict = reading.judge(time.time_ns())
    assert set(case.ranks.table) == {0}  # and no data loader
    states = {probe.name: probe.state for probe in verdict.probes}
    assert states["collective"] == "idle"
    assert "barrier" in (next((folder / "stacks").iterdir()) / "0.json").read_text()


def test_unseen_output_reaches_the_verdict(
    tmp_path: Path, train: Callable[..., Path], server: Path
) -> None:
    name = f"null-{os.getpid()}"
    train(0, FOREWARN_JOB=name, TORCH_WORKER_SERVER_SOCKET=str(server))
    lines, proc = list[str](), tmp_path / "proc"
    for process in find_processes():
        if process.job == name:
            (proc / str(process.pid) / "fd").mkdir(parents=True)
            for file in ("environ", "stat", "exe", "comm", "status", "cgroup"):
                (proc / str(process.pid) / file).symlink_to(f"/proc/{process.pid}/{file}")
            (proc / str(process.pid) / "fd" / "1").symlink_to("/dev/null")
    table = JobsTable.model_validate({"timeout": "60s"})
    say = lines.append
    JobCollector(table, tmp_path / "jobs", "node-1", SystemClock(), say, proc).collect()
    _, verdict = read_job(tmp_path / "jobs" / name).judge(time.time_ns())
    assert "logs rank 0: stdout is /dev/null" in verdict.blind
    assert "logs rank 0: stderr is closed" in verdict.blind
    assert f"{name}: no copy of the output of rank 0: stdout is /dev/null" in lines


def test_stacks_require_policy(tmp_path: Path, train: Callable[..., Path], server: Path) -> None:
    name = f"off-{os.getpid()}"
    train(0, FOREWARN_JOB=name, TORCH_WORKER_SERVER_SOCKET=str(server))
    collector(tmp_path / "jobs").collect()
    assert {"flight", "kernel", "logs", "ranks.csv"} == {
        path.name for path in (tmp_path / "jobs" / name).iterdir()
    }


def test_next_poll_when_operation_becomes_old(
    tmp_path: Path, train: Callable[..., Path], server: Path
) -> None:
    began = time.time_ns()
    Torch.waits_since = began - 12 * SECOND
    name = f"soon-{os.getpid()}"
    train(0, FOREWARN_JOB=name, TORCH_WORKER_SERVER_SOCKET=str(server))
    jobs, clock = collector(tmp_path / "jobs", stacks="server"), SetClock(began)
    jobs.clock = clock
    jobs.collect()
    stacks = tmp_path / "jobs" / name / "stacks"
    assert not stacks.exists()
    assert jobs.pause(began) == 10.0  # until the next poll of the log
    assert jobs.pause(began + 15 * SECOND) == 3.0
    clock.moment = began + 20 * SECOND
    jobs.collect()
    assert len(list(stacks.iterdir())) == 1


def test_rank_rows_of_other_hosts_are_kept(tmp_path: Path, train: Callable[..., Path]) -> None:
    name = f"two-{os.getpid()}"
    train(3, FOREWARN_JOB=name)
    table = tmp_path / "jobs" / name / "ranks.csv"
    table.parent.mkdir(parents=True)
    table.write_text("rank,machine,tp\n2,node-1,0\n3,node-1,1\n9,node-2,1\n")
    collector(tmp_path / "jobs").collect()
    lines = table.read_text().splitlines()
    assert lines[0] == "rank,machine,local_rank,pid,tp"
    assert [line.split(",")[:3] for line in lines[1:]] == [
        ["3", "node-1", "3"],
        ["9", "node-2", ""],
    ]
    assert lines[1].endswith(",1")


@pytest.mark.skipif(os.getuid() != 0, reason="gives a socket away")
def test_foreign_sockets_are_not_contacted(
    tmp_path: Path, train: Callable[..., Path], server: Path
) -> None:
    os.chown(server, 12345, 12345)
    name = f"foreign-{os.getpid()}"
    train(0, FOREWARN_JOB=name, TORCH_WORKER_SERVER_SOCKET=str(server))
    collector(tmp_path / "jobs").collect()
    assert not (tmp_path / "jobs" / name / "flight").exists()


def test_log_copy_is_incremental_and_bounded(tmp_path: Path, train: Callable[..., Path]) -> None:
    name = f"long-{os.getpid()}"
    log = train(0, FOREWARN_JOB=name)
    (process,) = [process for process in find_processes() if process.job == name]
    copies, folder = LogCopier("node-1", 1000), tmp_path / "logs"
    copies.copy([process], folder)
    copy = folder / "node-1/attempt_0/0/stdout.log"
    with log.open("a") as stream:
        stream.write("step 2\n")
    assert copies.copy([process], folder).last_write == pytest.approx(log.stat().st_mtime)
    assert copy.read_bytes() == log.read_bytes()
    with log.open("a") as stream:
        stream.writelines(f"step {number}\n" for number in range(3, 300))
    copies.copy([process], folder)
    assert copy.read_text().startswith("step ")
    assert copy.read_text().endswith("step 299\n")
    assert copy.stat().st_size <= 1000


def test_symlinked_error_file_is_not_followed(tmp_path: Path, train: Callable[..., Path]) -> None:
    name = f"link-{os.getpid()}"
    log = train(0, FOREWARN_JOB=name)
    (tmp_path / "secret").write_text("{}")
    (log.parent / "error.json").symlink_to(tmp_path / "secret")
    (process,) = [process for process in find_processes() if process.job == name]
    LogCopier("node-1", 1000).copy([process], tmp_path / "logs")
    assert {path.name for path in (tmp_path / "logs").rglob("*.*")} == {"stdout.log"}


def test_shared_file_gives_no_rank_log(tmp_path: Path) -> None:
    proc, shared = tmp_path / "proc", tmp_path / "slurm-7.out"
    shared.write_text("step 1\n")
    processes = []
    for pid in (11, 12):
        (proc / str(pid) / "fd").mkdir(parents=True)
        (proc / str(pid) / "fd" / "1").symlink_to(shared)
        processes.append(JobProcess(pid, 1, 0, "job", pid, None, None))
    LogCopier("node-1", 1000, proc).copy(processes, tmp_path / "logs")
    assert [path.name for path in (tmp_path / "logs").rglob("*.log")] == ["slurm-7.log"]
    assert (tmp_path / "logs/node-1/slurm-7.log").read_text() == "step 1\n"


def test_gloo_status_marks_completed_operations() -> None:
    entries = [
        {"pg_id": 4, "collective_seq_id": number, "state": "scheduled", "time_created_ns": number}
        for number in (7, 8)
    ]
    status = {"4": {"last_completed_collective": "7"}}
    assert oldest_unfinished({"entries": entries, "pg_status": status}) == 8
    assert oldest_unfinished({"entries": entries[:1], "pg_status": status}) is None


def test_no_folder_collects_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "agent.toml"
    policy.write_text("[jobs]\nevery = '10s'\n")
    assert main(["diagnose", "collect", "--policy", str(policy), "--once"]) == 2
    assert "`jobs.folder` is missing" in capsys.readouterr().err


def test_unwritable_folder_is_logged_once(tmp_path: Path, train: Callable[..., Path]) -> None:
    job = f"full-{os.getpid()}"
    train(0, FOREWARN_JOB=job)
    (tmp_path / "jobs").write_text("a file")
    jobs, stop, lines = collector(tmp_path / "jobs"), StoppingAfterTwo(), list[str]()
    jobs.say, jobs.proc = lines.append, tmp_path / "proc"
    jobs.proc.mkdir()
    for process in find_processes():  # other tests start and end jobs
        if process.job == job:
            (jobs.proc / str(process.pid)).symlink_to(f"/proc/{process.pid}")
    jobs.run(stop)
    assert stop.looks == 2
    assert len(lines) == 1
    assert lines[0].startswith("jobs cannot be collected")
