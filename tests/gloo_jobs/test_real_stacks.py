"""Stacks of real processes taken by a real py-spy, from the agent to the verdict."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import skip_or_fail
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.features.time_units import SECOND
from forewarn.pipelines.agent.jobs.job_collector import JobCollector
from forewarn.pipelines.config.agent_policy import JobsTable
from forewarn.pipelines.diagnosis.loaded_job import read_job
from forewarn.pipelines.runtime.clock import SystemClock

pytestmark = pytest.mark.gloo
SILENT = 500  # seconds: logs are silent after 8 minutes
STUCK = 2
# Replaces torch's module: a waiting rank is recognized by the file of its function.
LIBRARY = "import time\ndef barrier():\n    print('waits', flush=True)\n    time.sleep(600)\n"
PROGRAM = """import os, sys, time
sys.path.insert(0, sys.argv[1])
import distributed_c10d
def read_shard():
    print('reads', flush=True)
    time.sleep(600)
read_shard() if os.environ['RANK'] == sys.argv[2] else distributed_c10d.barrier()
"""


class Ahead(SystemClock):
    """The clock of this machine, some seconds ahead."""

    seconds = SILENT

    def now(self) -> int:
        return super().now() + self.seconds * SECOND


@pytest.fixture
def job(tmp_path: Path) -> Iterator[str]:
    """Start two ranks that wait and one that reads and is stopped."""
    library = tmp_path / "torch" / "distributed"
    library.mkdir(parents=True)
    (library / "distributed_c10d.py").write_text(LIBRARY)
    name = f"spied-{os.getpid()}"
    processes = []
    for rank in range(3):
        log = tmp_path / f"{rank}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(library), str(STUCK)],
                stdout=out,
                stderr=out,
                env={**os.environ, "RANK": str(rank), "FOREWARN_JOB": name},
            )
        processes.append(process)
        while not log.stat().st_size:
            assert process.poll() is None, "the process ended before its call"
            time.sleep(0.01)
    os.kill(processes[STUCK].pid, signal.SIGSTOP)
    yield name
    for process in processes:
        process.kill()
        process.communicate()


def test_stopped_rank_found_by_py_spy_stacks(job: str, tmp_path: Path) -> None:
    programs = torch_programs()
    if programs is None:
        skip_or_fail("no environment with py-spy: make it by .ci/setup_torch")
    policy = {"stacks": "py-spy", "py_spy": str(programs / "py-spy"), "timeout": "60s"}
    table = JobsTable.model_validate(policy)
    clock, complaints = Ahead(), list[str]()
    jobs = JobCollector(table, tmp_path / "jobs", "node-1", clock, complaints.append)
    for _ in range(12):
        jobs.collect()
        clock.seconds += 30
    # Jobs of other tests may run on this machine, too.
    assert [text for text in complaints if text.startswith(job)] == []
    clock.seconds -= 30
    _, verdict = read_job(tmp_path / "jobs" / job).judge(clock.now())
    assert (verdict.kind, verdict.rank) == ("hang", STUCK)
    states = {probe.name: probe.state for probe in verdict.probes}
    # The logs have no timestamps.
    assert states == {"log": "blind", "stack": "idle", "kernel": "idle"}
    says = " ".join(evidence.says for evidence in verdict.evidence)
    assert f"rank {STUCK} is in read_shard" in says
    assert f"rank {STUCK} is in state T" in says
