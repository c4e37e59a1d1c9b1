"""Exits of training processes and retention of job folders, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.features.time_units import DAY, HOUR, SECOND
from forewarn.pipelines.agent.jobs.folder_retention import prune_folders
from forewarn.pipelines.agent.jobs.job_collector import JobCollector
from forewarn.pipelines.agent.jobs.job_tables import write_exits
from forewarn.pipelines.agent.jobs.kernel_samples import KernelSamples
from forewarn.pipelines.agent.jobs.process_exits import ExitWatcher
from forewarn.pipelines.agent.jobs.training_processes import JobProcess, stat_fields
from forewarn.pipelines.config.agent_policy import JobsTable
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.runtime.clock import SystemClock

# The last line is written at the exit, after all polls of the running process.
PROGRAM = (
    "import sys\n"
    "print('2026-11-22 10:00:00,000 step 1', flush=True)\n"
    "code = int(sys.stdin.readline())\n"
    "print('2026-11-22 10:00:01,000 RuntimeError: CUDA error: device-side assert', flush=True)\n"
    "sys.exit(code)\n"
)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run rank 3 of a job below torchrun's tree."""
    log = tmp_path / "run" / "attempt_0" / "3" / "stdout.log"
    log.parent.mkdir(parents=True)
    variables = {**os.environ, "RANK": "3", "LOCAL_RANK": "3", "FOREWARN_JOB": name()}
    command = [sys.executable, "-c", PROGRAM]
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=variables, text=True
        ) as process,
    ):
        while not log.stat().st_size:
            assert process.poll() is None, "it ended before it said anything"
            time.sleep(0.01)
        yield process
        process.kill()


def name() -> str:
    return f"exits-{os.getpid()}"


def collector(folder: Path) -> JobCollector:
    return JobCollector(JobsTable(), folder, "node-1", SystemClock(), lambda _: None)


def wait_for_end(process: subprocess.Popen[str]) -> None:
    """Wait until a process has ended, without collecting its exit code."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_exit_code_and_final_output_are_saved(tmp_path: Path, rank: subprocess.Popen[str]) -> None:
    jobs, folder = collector(tmp_path / "jobs"), tmp_path / "jobs" / name()
    jobs.collect()
    assert not (folder / "exits.csv").exists()
    (tmp_path / "run/attempt_0/3/error.json").write_text('{"message": "x"}')
    assert rank.stdin is not None
    rank.stdin.write("7\n")
    rank.stdin.flush()
    wait_for_end(rank)
    jobs.collect()
    head, row = (folder / "exits.csv").read_text().splitlines()
    assert head == "rank,exit_code,timestamp"
    assert row.startswith("3,7,20")
    assert "device-side assert" in (folder / "logs/node-1/attempt_0/3/stdout.log").read_text()
    assert (folder / "logs/node-1/attempt_0/3/error.json").exists()
    (folder / "exits.csv").write_text("rank,exit_code,timestamp,by\n0,-9,,slurm\n")
    jobs.collect()  # another host wrote the table at the same time
    lines = (folder / "exits.csv").read_text().splitlines()
    assert (lines[1], lines[2]) == ("0,-9,,slurm", f"{row},")
    assert "exits" in read_job(folder).parts


def followed(process: subprocess.Popen[str], proc: Path = Path("/proc")) -> ExitWatcher:
    exits = ExitWatcher(SystemClock(), proc)
    start = int(stat_fields(Path("/proc") / str(process.pid))[19])
    exits.follow(JobProcess(process.pid, start, os.getuid(), "job", 3, 3, None))
    return exits


def test_signal_before_parent_waits(rank: subprocess.Popen[str]) -> None:
    exits = followed(rank)
    assert exits.ended() == []
    rank.send_signal(signal.SIGKILL)
    wait_for_end(rank)
    (end,) = exits.ended()
    assert (end.process.rank, end.code) == (3, -9)
    assert exits.ended() == []


def test_exit_code_after_parent_waits(rank: subprocess.Popen[str]) -> None:
    exits = followed(rank)
    rank.kill()
    rank.wait()
    (end,) = exits.ended()
    version = tuple(map(int, os.uname().release.split(".")[:2]))
    assert end.code == (-9 if version >= (6, 15) else None)


def test_reused_pid_is_not_followed(
    rank: subprocess.Popen[str],
) -> None:
    exits = ExitWatcher(SystemClock())
    exits.follow(JobProcess(rank.pid, 1, os.getuid(), "job", 3, 3, None))
    rank.kill()
    wait_for_end(rank)
    assert exits.ended() == []


def test_exit_is_written_once(tmp_path: Path) -> None:
    table = tmp_path / "exits.csv"
    for _ in range(2):
        write_exits(table, [(1, -15, "2026-11-22T10:00:00Z")])
    write_exits(table, [(1, 0, "2026-11-22T11:00:00Z")])
    assert table.read_text().splitlines() == [
        "rank,exit_code,timestamp",
        "1,-15,2026-11-22T10:00:00Z",
        "1,0,2026-11-22T11:00:00Z",
    ]


def test_state_d_time_is_lower_bound(tmp_path: Path) -> None:
    samples, folder = KernelSamples("node-1", tmp_path), tmp_path / "11"
    folder.mkdir()
    process = JobProcess(11, 5, 0, "job", 0, 0, None)
    for number, (state, switches) in enumerate([("R", 3), ("D", 4), ("D", 4), ("D", 6)]):
        (folder / "stat").write_text(f"11 (python) {state} 1")
        counts = f"voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t1\n"
        (folder / "status").write_text(counts)
        (folder / "io").write_text(f"syscr: {100 * number}\nsyscw: 0\n")
        io = folder / "task" / "11" / "io"
        io.parent.mkdir(parents=True, exist_ok=True)
        io.write_text(f"syscr: {number // 3}\nsyscw: 1\n")
        samples.sample(process, number * 10 * SECOND)
    calls = [row["syscalls"] for row in samples._rows["job"]]
    assert calls == [None, 0.0, 0.0, 1.0]  # switches of other threads do not count
    assert [row["d_seconds"] for row in samples._rows["job"]] == [None, 0.0, 10.0, 0.0]


def made(folder: Path, job: str, days: float, size: int = 10, now: int = 100 * DAY) -> Path:
    path = folder / job
    path.mkdir(parents=True)
    (path / "ranks.csv").write_text("x" * size)
    os.utime(path / "ranks.csv", ns=(now, now - round(days * DAY)))
    return path


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_untouched_folders_are_removed(tmp_path: Path) -> None:
    for job, days in (("old", 31.0), ("busy", 31.0), ("young", 29.0)):
        made(tmp_path, job, days)
    (tmp_path / "not-ours").mkdir()
    (tmp_path / "link").symlink_to(made(tmp_path / "elsewhere", "kept", 99.0))
    (tmp_path / ".half.removed").mkdir()
    lines = list(prune_folders(tmp_path, keep=30 * DAY, most=2**30, busy={"busy"}, now=100 * DAY))
    assert left(tmp_path) == {"busy", "young", "not-ours", "link", "elsewhere"}
    assert (tmp_path / "elsewhere/kept/ranks.csv").exists()
    assert lines == [f"removed {tmp_path / 'old'}: no writes for 31.0 days"]


def put_rounds(job: Path, ages: list[float], size: int = 100) -> None:
    """Write stack samples of the given ages in hours, oldest first."""
    for number, hours in enumerate(ages):
        file = job / "stacks" / f"2026-11-22T{number:02d}:00:00Z" / "0.json"
        file.parent.mkdir(parents=True)
        file.write_text("x" * size)
        moment = 100 * DAY - round(hours * HOUR)
        os.utime(file, ns=(moment, moment))


@pytest.mark.parametrize(
    ("most", "keep", "remaining"), [(10_000, 30, 8), (510, 30, 5), (710, 30, 7), (10_000, 0.25, 6)]
)
def test_stack_samples_of_running_job_are_bounded(
    tmp_path: Path, most: int, keep: float, remaining: int
) -> None:
    job = made(tmp_path, "busy", 0.0)
    put_rounds(job, [7.5, 6.5, 5.5, 4.5, 3.5, 2.5, 1.5, 0.5])
    other = made(tmp_path, "elsewhere", 0.02)
    put_rounds(other, [0.5])
    moments = {"keep": round(keep * DAY), "most": most + 110}
    list(prune_folders(tmp_path, busy={"busy"}, now=100 * DAY, **moments))
    names = sorted(path.name for path in (job / "stacks").iterdir())
    assert names == [f"2026-11-22T{n:02d}:00:00Z" for n in range(8 - remaining, 8)]
    assert len(list((other / "stacks").iterdir())) == 1


def test_oldest_folders_go_until_size_fits(tmp_path: Path) -> None:
    for job, days in (("a", 3.0), ("b", 2.0), ("c", 1.0), ("d", 0.01)):
        made(tmp_path, job, days, size=100)
    list(prune_folders(tmp_path, keep=30 * DAY, most=250, busy=set(), now=100 * DAY))
    assert left(tmp_path) == {"c", "d"}
    list(prune_folders(tmp_path, keep=30 * DAY, most=10, busy=set(), now=100 * DAY))
    assert left(tmp_path) == {"d"}  # another host may still write to it
