"""A real job under `forewarn launch` that meets four faults, one after another."""

from __future__ import annotations

import json
import shutil
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import skip_or_fail
from tests.gloo_jobs.live_evidence import KernelSamples, pids, take_dumps, take_stacks
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.pipelines.recovery.job_launcher import JobLauncher
from forewarn.pipelines.recovery.lost_job import lost_by_job

pytestmark = pytest.mark.gloo
WORKER = Path(__file__).with_name("launched_worker.py")
FAULTS = ("exit", "agent", "hang", "slow")
HOSTS, STEPS = 3, 45
SILENT_SECONDS = 4.0


class _Agents:
    """Collect evidence of a hang and of a slow rank, as agents would on the hosts."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs = folder, programs
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for number, fault in enumerate(FAULTS, start=1):
            if fault in ("hang", "slow") and self._await(number, fault):
                self._collect(number)

    def _await(self, number: int, fault: str) -> bool:
        while not self.over.wait(0.2):
            logs = list(self.folder.glob(f"job/attempt-{number:04d}/logs/*/*/*/*/stdout.log"))
            counts = [log.read_bytes().count(b" step ") for log in logs]
            is_silent = all(time.time() - log.stat().st_mtime > SILENT_SECONDS for log in logs)
            if logs and min(counts) >= 6 and (is_silent or (fault == "slow" and min(counts) > 14)):
                return True
        return False

    def _collect(self, number: int) -> None:
        source = self.folder / "job" / f"attempt-{number:04d}"
        collected = self.folder / f".{number}"
        scratch = self.folder / f"processes-{number}"
        samples = KernelSamples(scratch)
        collected.mkdir()
        shutil.copy(source / "ranks.csv", collected)
        take_stacks(self.programs / "py-spy", pids(scratch), collected / "stacks")
        take_dumps(scratch, collected / "flight")
        samples.write(collected / "kernel" / "samples.parquet")
        shutil.copytree(source / "logs", collected / "logs")
        (self.folder / "evidence").mkdir(exist_ok=True)
        collected.rename(self.folder / "evidence" / f"job-{number}")


@pytest.fixture(scope="module")
def launched(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[dict[str, Any]]]:
    """Run the job; return its folder and what the launcher reported."""
    programs = torch_programs()
    if programs is None:
        skip_or_fail("no environment with torch: make it by .ci/setup_torch")
    folder = tmp_path_factory.mktemp("launched")
    program = [str(WORKER), str(folder), str(STEPS), ",".join(FAULTS)]
    (folder / "job.toml").write_text(f"""
hosts = ["n[0-{HOSTS - 1}]", "spare-[1-{len(FAULTS)}]"]
nodes = {HOSTS}
processes = 1
program = {json.dumps(program)}
folder = "job"
python = "{programs / "python"}"
port = {_free_port()}
silence = "14s"
look = "3s"
grace = "5s"
evidence = "evidence"
[environment]
OMP_NUM_THREADS = "1"
GLOO_SOCKET_IFNAME = "lo"
TORCH_FR_BUFFER_SIZE = "2000"
TZ = "UTC"
""")
    events: list[dict[str, Any]] = []
    agents = _Agents(folder, programs)
    code = JobLauncher(folder / "job.toml", events.append).run()
    agents.over.set()
    agents.thread.join()
    assert code == 0
    return folder, events


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_each_fault_replaces_the_machine_of_rank_1(
    launched: tuple[Path, list[dict[str, Any]]],
) -> None:
    _, events = launched
    ends = [event for event in events if event["event"] == "end"]
    starts = [event for event in events if event["event"] == "start"]
    assert [end["ended"] for end in ends] == [*["failed"] * len(FAULTS), "completed"]
    assert [end["blamed"] for end in ends[:-1]] == ["n1", "spare-1", "spare-2", "spare-3"]
    assert [start["rung"] for start in starts] == [None, *["replace"] * len(FAULTS)]
    assert starts[-1]["machines"] == ["n0", "spare-4", "n2"]


def test_training_goes_on_from_the_step_that_the_log_says(
    launched: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, _ = launched
    saved = 0
    for attempt in sorted((folder / "job").glob("attempt-*")):
        [log] = attempt.glob("logs/n0/*/*/0/stdout.log")
        lines = log.read_text().splitlines()
        [first, *_] = [int(line.split()[4]) for line in lines if " INFO step " in line]
        assert first == saved + 1
        saves = [int(line.split()[-1]) for line in lines if "successfully saved" in line]
        saved = max([saved, *saves])
    assert saved == STEPS


def test_accounts_agree_with_the_job_within_a_step(
    launched: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, _ = launched
    spans = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    truth: Counter[str] = Counter()
    for span in spans:
        truth[span["use"]] += span["end"] - span["begin"]
    steps = [s["end"] - s["begin"] for s in spans if s["use"] in ("useful", "recompute")]
    report = lost_by_job(folder / "job")
    assert sum(report["gpu_ns"].values()) == report["elapsed_gpu_ns"]
    seconds = {use: time / HOSTS / 1e9 for use, time in report["gpu_ns"].items()}
    for use in ("useful", "recompute", "save"):
        assert seconds[use] == pytest.approx(truth[use], abs=max(steps)), use
    assert [each["rung"] for each in report["interruptions"]] == ["replace"] * len(FAULTS)
