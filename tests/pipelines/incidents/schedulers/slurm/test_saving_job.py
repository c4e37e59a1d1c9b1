"""A real gloo job under a real Slurm: it saves on notice and restarts without a blocked machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import skip_or_fail
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.gloo

WORKER = Path(__file__).parents[4] / "gloo_jobs" / "saving_worker.py"
COMMAND = "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main(sys.argv[1:]))"
STEPS = 1_000_000
CONFIG = """
[respond]
driver = "slurm"
slurm_conf = "{conf}"
command_timeout = "60s"
notices = "notices"
every = "1s"
[respond.pools.rest]
partition = "gpu"
"""
BATCH = """#!/bin/sh
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo
srun --ntasks-per-node=1 --kill-on-bad-exit=0 {python} {worker} {folder} {folder}/notices {steps}
[ $? -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
"""


@dataclass
class SavingJob:
    """A job of two ranks on two machines, next to a responder."""

    folder: Path
    slurm: Any
    number: str = ""

    @property
    def config(self) -> str:
        return str(self.folder / "my.toml")

    def attempts(self) -> dict[str, list[tuple[str, int]]]:
        """Return machine and step of rank 0, and of rank 1, by attempt."""
        rows: dict[str, list[tuple[str, int]]] = {}
        for rank in (0, 1):
            path = self.folder / f"{rank}.log"
            for line in path.read_text().splitlines() if path.exists() else []:
                attempt, machine, step = line.split()
                rows.setdefault(attempt, []).append((machine, int(step)))
        return rows

    def machines(self, attempt: str) -> set[str]:
        return {machine for machine, _ in self.attempts().get(attempt, [])}

    def block(self) -> dict[str, Any]:
        command = [sys.executable, "-c", COMMAND, "blocks", "list", "--all", "--json"]
        command += ["--config", self.config]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        block: dict[str, Any] = json.loads(done.stdout)
        return block


@pytest.fixture
def job(slurm: Any, tmp_path: Path) -> Iterator[SavingJob]:
    programs = torch_programs()
    if programs is None:
        skip_or_fail("no environment with torch: make it by .ci/setup_torch")
    saving = SavingJob(tmp_path, slurm)
    values = {"python": programs / "python", "worker": WORKER, "folder": tmp_path, "steps": STEPS}
    (tmp_path / "batch").write_text(BATCH.format(**values))
    Path(saving.config).write_text(CONFIG.format(conf=slurm.conf))
    assert main(["respond", "--new-ledger", "--once", "--config", saving.config]) == 0
    with ExitStack() as stack:
        output = stack.enter_context((tmp_path / "respond.err").open("wb"))
        loop = [sys.executable, "-c", COMMAND, "respond", "--watch", "--config", saving.config]
        process = subprocess.Popen(loop, stdout=output, stderr=output)
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        options = ["--parsable", "--requeue", "-N", "2", "-c", "2", "-o", str(tmp_path / "out")]
        command = ["sbatch", *options, "--open-mode=append", str(tmp_path / "batch")]
        saving.number = slurm.call(*command).strip()
        assert saving.number.isdigit(), saving.number
        yield saving


def test_job_saves_on_notice_and_restarts_without_blocked_machine(job: SavingJob) -> None:
    until = job.slurm.until
    until(lambda: len(job.attempts().get("0", [])) >= 20, "the job makes steps")
    bad = max(job.machines("0"))
    config = ("--config", job.config)
    assert main(["blocks", "add", job.number, bad, "--why", "wrong losses", *config]) == 0
    until((job.folder / "checkpoint").exists, "the job saves on notice")
    saved = int((job.folder / "checkpoint").read_text())
    assert max(step for _, step in job.attempts()["0"]) == saved - 1  # no step is lost
    until(lambda: job.block()["state"] == "holding", "the job that waits excludes the machine")
    # Slurm lets a requeued job wait for two minutes.
    job.slurm.call("scontrol", "update", f"jobid={job.number}", "starttime=now")
    until(lambda: len(job.attempts().get("1", [])) >= 20, "the job makes steps again")
    assert bad not in job.machines("1")
    assert min(step for _, step in job.attempts()["1"]) == saved
    assert "DRAIN" not in job.slurm.line(bad)  # other jobs may use it
    until(lambda: not list((job.folder / "notices").iterdir()), "the notice ends")
    job.slurm.call("scancel", job.number)
    until(lambda: job.block()["state"] == "ended", "the block ends with the job")
