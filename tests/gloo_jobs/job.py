"""A faulty job of eight ranks under torchrun, as a folder that `diagnose run` reads."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.gloo_jobs.launcher_report import Failure, failures
from tests.gloo_jobs.live_evidence import KernelSamples, pids, take_dumps, take_stacks

__all__ = ["CRASHES", "FAULTS", "HANGS", "LOCAL", "Plan", "run_job", "watch_hang"]

WORKER = Path(__file__).with_name("worker.py")
MACHINES, LOCAL, TENSOR = 2, 4, 2
RANKS = MACHINES * LOCAL
FAULTS = (
    *("loader_stuck", "wrong_collective", "opposite_order", "sigstop"),
    *("sigkill", "exception", "state_d", "slow"),
)
CRASHES = ("sigkill", "exception")  # these end on their own
HANGS = tuple(fault for fault in FAULTS if fault not in (*CRASHES, "slow"))
PAUSE = 0.05  # seconds of computation per step
SILENCE = 8.0  # seconds without a line before evidence is taken
TIMEOUT = 24.0  # of gloo, in seconds: evidence has to be taken before it
ROUNDS, APART = 5, 30.0  # stack samples, as an agent takes them; seconds apart
LONG_TIMEOUT = 600.0  # PyTorch's own
STEPS_BEFORE, STEPS_SLOW = 20, 45
LONGEST = 240.0  # maximum duration of a job in seconds


@dataclass(frozen=True)
class Plan:
    """Fault, rank and step of a job.

    Attributes
    ----------
    fault : str
        One of `FAULTS`, or `none`.
    rank, step : int
    """

    fault: str
    rank: int
    step: int

    @classmethod
    def drawn(cls, fault: str, seed: int) -> Plan:
        """Draw rank and step; the slow rank of seed 0 is 5."""
        chance = random.Random(f"{fault} {seed}")
        rank = 5 if fault == "slow" and not seed else chance.randrange(RANKS)
        return cls(fault, rank, chance.randrange(STEPS_BEFORE // 2, STEPS_BEFORE))

    @property
    def truth(self) -> int | None:
        """The culprit; None if the program is at fault."""
        return None if self.fault == "opposite_order" else self.rank

    @property
    def steps(self) -> int:
        """Number of steps without a fault."""
        return self.step + 1000

    @property
    def seen_after(self) -> int:
        """Step after which evidence is taken."""
        return self.step + STEPS_SLOW if self.fault == "slow" else self.step - 1


def run_job(plan: Plan, job: Path, programs: Path, *, to_the_end: bool = True) -> list[Failure]:
    """Run a job, fill its folder, and return the failures that torchrun reports.

    The folder has `ranks.csv` and `logs`, and for a stalled or running job `flight`, `stacks` and
    `kernel`. With `to_the_end` a hang continues until its time-out; the folder before that is kept
    with the suffix `.hung`, and `exits.csv` is written from torchrun's report.
    """
    scratch = _put_ranks(job)
    # If the job is not run to its end, collecting may take long on a busy machine.
    timeout = TIMEOUT if to_the_end else LONG_TIMEOUT
    with _launched(plan, job, scratch, programs, timeout) as agents:
        if plan.fault not in CRASHES:
            _take_evidence(plan, job, scratch, programs, agents)
            if to_the_end and plan.fault != "slow":
                shutil.copytree(job, job.with_suffix(".hung"))
        if plan.fault != "slow" and (to_the_end or plan.fault in CRASHES):
            for agent in agents:
                agent.wait(LONGEST)
    if not (to_the_end or plan.fault in CRASHES) or plan.fault == "slow":
        return []
    return _write_exits(job)


def watch_hang(plan: Plan, job: Path, programs: Path) -> None:
    """Run a job until it hangs, and sample it as an agent does: five times, 30 s apart.

    Dumps are taken with the last stacks; then the job is killed.
    """
    scratch = _put_ranks(job)
    with _launched(plan, job, scratch, programs, LONG_TIMEOUT) as agents:
        samples = KernelSamples(scratch)
        _await(plan, job, agents)
        for number in range(ROUNDS):
            time.sleep(APART if number else 0.0)
            take_stacks(programs / "py-spy", pids(scratch), job / "stacks")
        take_dumps(scratch, job / "flight")
        samples.write(job / "kernel" / "samples.parquet")


def _put_ranks(job: Path) -> Path:
    """Create the folder of a job and a scratch folder for its processes, and return the latter."""
    scratch = job.with_suffix(".run")
    for folder in (scratch, job / "logs"):
        folder.mkdir(parents=True)
    rows = (f"{r},node-{r // LOCAL},{r % LOCAL},{r % TENSOR},{r // TENSOR}\n" for r in range(RANKS))
    (job / "ranks.csv").write_text("rank,machine,local_rank,tp,dp\n" + "".join(rows))
    return scratch


@contextmanager
def _launched(
    plan: Plan, job: Path, scratch: Path, programs: Path, timeout: float
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start a torchrun agent per machine; kill all remaining processes at the end."""
    port, agents = _free_port(), []
    values = {
        **{"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_FR_BUFFER_SIZE": "2000"},
        **{"PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "", "TZ": "UTC"},
    }
    for number in range(MACHINES):
        logs = job / "logs" / f"node-{number}"
        logs.mkdir()
        options = {
            **{"nnodes": MACHINES, "nproc-per-node": LOCAL, "node-rank": number},
            **{"master-addr": "127.0.0.1", "master-port": port, "log-dir": logs, "redirects": 3},
            "shutdown-timeout": 20,
        }
        command = [
            str(programs / "torchrun"),
            *_words(options),
            str(WORKER),
            *_worker(plan, timeout),
        ]
        command += ["--folder", str(scratch)]
        with (logs / "torchrun.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | values, start_new_session=True
            )
        agents.append(process)
    try:
        yield agents
    finally:
        _end(agents, scratch)


def _words(options: dict[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def _worker(plan: Plan, timeout: float) -> list[str]:
    options = {"fault": plan.fault, "rank": plan.rank, "step": plan.step, "steps": plan.steps}
    return _words(options | {"pause": PAUSE, "timeout": timeout})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(agents: list[subprocess.Popen[bytes]], scratch: Path) -> None:
    """Kill remaining processes: some ignore SIGTERM, and a child in vfork outlives its parent."""
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        if os.fsencode(scratch) in _command_line(pid).split(b"\0"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for agent in agents:
        agent.wait(LONGEST)


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _take_evidence(
    plan: Plan, job: Path, scratch: Path, programs: Path, agents: list[subprocess.Popen[bytes]]
) -> None:
    """Collect evidence of a job that is stalled, or was slow for long enough."""
    samples = KernelSamples(scratch)
    _await(plan, job, agents)
    take_dumps(scratch, job / "flight")
    take_stacks(programs / "py-spy", pids(scratch), job / "stacks")
    samples.write(job / "kernel" / "samples.parquet")


def _await(plan: Plan, job: Path, agents: list[subprocess.Popen[bytes]]) -> None:
    """Wait until evidence is due."""
    deadline = time.monotonic() + LONGEST
    while not _is_due(plan, job):
        if time.monotonic() > deadline or any(agent.poll() is not None for agent in agents):
            raise RuntimeError(f"{job}: {plan} never came to the moment to look at it.")
        time.sleep(0.2)


def _is_due(plan: Plan, job: Path) -> bool:
    logs = list(job.glob("logs/*/*/attempt_0/*/stdout.log"))
    is_there = any(f" step {plan.seen_after} ".encode() in log.read_bytes() for log in logs)
    is_silent = all(time.time() - log.stat().st_mtime > SILENCE for log in logs)
    return is_there and (is_silent or plan.fault == "slow")


def _write_exits(job: Path) -> list[Failure]:
    reported = [f for log in job.glob("logs/*/torchrun.log") for f in failures(log.read_text())]
    rows = [f"{f.rank},{f.exit_code},{f.time}\n" for f in dict.fromkeys(reported)]
    (job / "exits.csv").write_text("rank,exit_code,timestamp\n" + "".join(rows))
    return reported
