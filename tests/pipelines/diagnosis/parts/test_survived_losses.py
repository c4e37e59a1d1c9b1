"""Jobs that go on after a machine was lost: launchers restart their workers, a spare joins."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main

BEGIN = dt.datetime(2026, 3, 1, 4, tzinfo=dt.UTC)
HOSTS = ("n0", "n1", "spare")
LOST, RESTARTED, JOINED = 60.0, 62.0, 75.0  # seconds after the start
PLACEHOLDER = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
PEER = "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:9388."
RESTARTS = {
    "torchrun": "[default] Worker group FAILED. 3/3 attempts left; will restart worker group",
    "dlrover": "[dlrover-trainer] Worker group FAILED, is failure node: False,3/3 attempts left; "
    "will restart worker group.",
}
FAILURES = {
    "torchrun": "failed (exitcode: 1) local_rank: 0 (pid: {pid}) of binary: /usr/bin/python",
    "dlrover": "The worker fails with {{0: ProcessFailure(local_rank=0, pid={pid}, exitcode=1, "
    "error_file='<N/A>', message='" + PLACEHOLDER + "')}}",
}


def _clock(seconds: float) -> str:
    moment = BEGIN + dt.timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}"


def _iso(seconds: float) -> str:
    return (BEGIN + dt.timedelta(seconds=seconds)).isoformat()


class Job:
    """Ranks 0 and 1 lose the machine of rank 2, for which a spare begins."""

    def __init__(self, folder: Path, launcher: str) -> None:
        self.folder, self.launcher = folder, launcher
        self.machines = dict(enumerate((*HOSTS[:2], "n2")))
        for rank, machine in self.machines.items():
            self.steps(machine, 0, rank, range(1, 7))
            self._log(machine, LOST - 30, "starts its workers")
        for rank, machine in enumerate(HOSTS[:2]):
            trace = f'Traceback (most recent call last):\n  File "t.py", line 9, in main\n{PEER}\n'
            (self.tree(machine, 0) / "stderr.log").write_text(
                "".join(f"[rank{rank}]: {line}\n" for line in trace.splitlines())
            )
            self._log(machine, LOST + 1, FAILURES[launcher].format(pid=100 + rank))
            self._log(machine, RESTARTED, RESTARTS[launcher])
        if launcher == "dlrover":
            failed = {"1": {"local_rank": 0, "exitcode": 1, "message": PLACEHOLDER}}
            self._log("master", LOST + 1, f"worker-1 restart 0 fails: {json.dumps(failed)}")
        self.write_ranks()

    def write_ranks(self) -> None:
        rows = [f"{rank},{machine},0,{100 + rank}\n" for rank, machine in self.machines.items()]
        (self.folder / "ranks.csv").write_text("rank,machine,local_rank,pid\n" + "".join(rows))

    def tree(self, machine: str, attempt: int) -> Path:
        path = self.folder / "logs" / machine / f"job_{machine}" / f"attempt_{attempt}" / "0"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _log(self, machine: str, seconds: float, text: str) -> None:
        path = self.folder / "logs" / (f"{machine}.log" if machine == "master" else machine)
        path = path if machine == "master" else path / "torchrun.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"[{_clock(seconds)}] [INFO] [agent.py:1:run] {text}\n")

    def steps(
        self, machine: str, attempt: int, rank: int, numbers: range, begin: float = 0
    ) -> None:
        lines = (
            f"{_clock(begin + 9 * (n - numbers[0]) + rank / 50)} INFO step {n} loss 2.5\n"
            for n in numbers
        )
        with (self.tree(machine, attempt) / "stdout.log").open("a") as file:
            file.writelines(lines)

    def go_on(self, count: int = 9) -> None:
        """Let the spare join; its launcher begins with attempt 0, the others have restarted."""
        self.machines[2] = "spare"
        self.write_ranks()
        if self.launcher == "dlrover":
            words = "Completed 1 round rendezvous of elastic-training is {0: 1, 1: 1, 3: 1}"
            self._log("master", JOINED, words)
        for rank, machine in self.machines.items():
            (self.tree(machine, int(rank < 2)) / "stderr.log").touch()
            self.steps(machine, int(rank < 2), rank, range(6, 6 + count), JOINED + 5)


@pytest.fixture(params=["torchrun", "dlrover"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    return Job(tmp_path / "job", request.param)


@pytest.fixture
def verdict(job: Job, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return `verdict(at)`: that of the command, at a number of seconds after the start."""

    def judged(at: float | None = None) -> dict[str, Any]:
        options = [] if at is None else ["--at", _iso(at)]
        assert main(["diagnose", "run", "--job", str(job.folder), "--json", *options]) == 0
        line: dict[str, Any] = json.loads(capsys.readouterr().out)
        return line

    return judged


def test_job_that_goes_on_with_a_spare_has_not_crashed(job: Job, verdict: Any) -> None:
    job.go_on()
    line = verdict()
    assert (line["kind"], line["machine"]) == ("none", None)


@pytest.mark.parametrize("count", [0, 1])
def test_lost_machine_is_named_until_a_step_follows(job: Job, verdict: Any, count: int) -> None:
    """Also afterwards, as of the time of the loss."""
    if count:
        job.go_on()
        job.machines[2] = "n2"
        job.write_ranks()
    line = verdict(LOST + 3)
    assert (line["kind"], line["rank"], line["machine"]) == ("crash", 2, "n2")


def test_spare_that_fails_later_is_named(job: Job, verdict: Any) -> None:
    job.go_on()
    trace = 'Traceback (most recent call last):\n  File "t.py", line 9, in main\n'
    error = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
    (job.tree("spare", 0) / "stderr.log").write_text(f"{trace}{error}\n")
    for rank in (0, 1):
        (job.tree(HOSTS[rank], 1) / "stderr.log").write_text(f"{trace}{PEER}\n")
    line = verdict()
    assert (line["kind"], line["rank"], line["machine"]) == ("crash", 2, "spare")


def test_placeholder_of_a_launcher_is_no_error(verdict: Any) -> None:
    assert PLACEHOLDER not in verdict(LOST + 3)["cause"]


@pytest.mark.parametrize(
    "line",
    [
        "Start periodical diagnosis: {'node_failure': -1, 'GPU is lost': 30}",
        "periodical_diagnose_GPU is lost initialized successfully",
    ],
)
def test_name_of_a_check_is_no_lost_gpu(job: Job, verdict: Any, line: str) -> None:
    job._log("spare", JOINED, line)
    job.go_on()
    assert verdict()["kind"] == "none"


def test_times_of_restarts_and_steps_decide_alone(tmp_path: Path, capsys: Any) -> None:
    """A restart that no step follows has not ended the failure before it."""
    for launcher, is_over in itertools.product(RESTARTS, (True, False)):
        job = Job(tmp_path / f"{launcher}-{is_over}", launcher)
        if is_over:
            job.go_on(count=1)
        assert main(["diagnose", "run", "--job", str(job.folder), "--json"]) == 0
        kind = json.loads(capsys.readouterr().out)["kind"]
        assert kind == ("none" if is_over else "crash"), (launcher, is_over)
