"""From a hang to a restart elsewhere: a real job under a real Slurm, and what people do."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import skip_or_fail
from tests.gloo_jobs.live_evidence import KernelSamples, pids, take_stacks
from tests.gloo_jobs.torch_environment import torch_programs

from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.gloo

WORKER = Path(__file__).parents[4] / "gloo_jobs" / "worker.py"
CONFIG = """
[respond]
driver = "slurm"
slurm_conf = "{conf}"
command_timeout = "60s"
policy = ["policy.toml"]
diagnoses = ["verdicts.jsonl", "nodes.json"]
first_day = "1ms"
every = "2s"
settle = "5s"
quiet = "1s"
[respond.pools.rest]
partition = "gpu"
mode = "propose"
share = 0.5
rack = 4
"""
POLICY = '[kinds.diagnosis]\nmode = "now"\n'  # a hung job gains nothing from a deadline
# The last machine of the first attempt is faulty: it stops a rank of every job that it runs.
BATCH = """#!/bin/sh
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
[ -e {run}/faulty ] || {{ echo "$nodes" | tail -1 >{run}/part; mv {run}/part {run}/faulty; }}
rm -f {run}/*.pid {run}/*.sock
rank=0
{{ echo rank,machine
for node in $nodes; do for local in 0 1; do echo $rank,$node; rank=$((rank + 1)); done; done
}} >{job}/ranks.part
mv {job}/ranks.part {job}/ranks.csv
exec srun --ntasks-per-node=1 --kill-on-bad-exit=1 \\
    {agent} 2 $(({port} + ${{SLURM_RESTART_COUNT:-0}})) {run} {job}/logs 40 100000
"""
AGENT = """#!/bin/sh
processes=$1 port=$2 folder=$3 logs=$4 step=$5 steps=$6
fault=none
[ "$SLURMD_NODENAME" != "$(cat {run}/faulty)" ] || fault=sigstop
export OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo TZ=UTC
exec {torchrun} --nnodes 2 --nproc-per-node $processes --node-rank "$SLURM_NODEID" \\
    --master-addr 127.0.0.1 --master-port $port --log-dir "$logs/$SLURMD_NODENAME" --redirects 3 \\
    {worker} --fault $fault --rank $(((SLURM_NODEID + 1) * processes - 1)) --step $step \\
    --steps $steps --pause 0.05 --timeout 1800 --folder $folder
"""
PAIR_SECONDS = 40
COMMAND = "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main(sys.argv[1:]))"
OUTPUTS = ("run/out", "respond.err", "watch.err", "decisions.jsonl")
SAMPLE_SECONDS = 2.0


@dataclass
class HungJob:
    """A job of four ranks on two machines, and a site that watches it."""

    folder: Path
    slurm: Any
    programs: Path
    began: float = field(default_factory=time.monotonic)
    times: list[tuple[float, str]] = field(default_factory=list)
    number: str = ""

    @property
    def job(self) -> Path:
        return self.folder / "jobs" / "llm-7b"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def config(self) -> str:
        return str(self.folder / "my.toml")

    @property
    def agent(self) -> Path:
        return self.run / "agent"

    def put_files(self, port: int) -> None:
        for folder in (self.job / "logs", self.run):
            folder.mkdir(parents=True)
        values = {"run": self.run, "job": self.job, "agent": self.agent, "port": port}
        (self.run / "batch").write_text(BATCH.format(**values))
        programs = {"torchrun": self.programs / "torchrun", "worker": WORKER}
        self.agent.write_text(AGENT.format(run=self.run, **programs))
        self.agent.chmod(0o755)
        (self.folder / "policy.toml").write_text(POLICY)
        Path(self.config).write_text(CONFIG.format(conf=self.slurm.conf))

    def submit(self) -> None:
        options = ["--parsable", "--requeue", "-N", "2", "-c", "4", "-o", str(self.run / "out")]
        options += ["--open-mode=append", str(self.run / "batch")]
        self.number = self.slurm.call("sbatch", *options).strip()
        assert self.number.isdigit(), self.number
        self.note("the job is submitted")

    def note(self, what: str) -> None:
        self.times.append((time.monotonic() - self.began, what))
        sys.stdout.write(f"{self.times[-1][0]:7.1f} s  {what}\n")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            self.slurm.until(condition, what)
        except AssertionError as error:
            paths = [self.folder / name for name in OUTPUTS]
            texts = {path.name: path.read_text()[-2000:] for path in paths if path.exists()}
            pytest.fail(f"{error}; {json.dumps(texts, indent=1)}")
        self.note(what)

    def machines(self) -> set[str]:
        """Return the machines on which the job runs."""
        line = self.slurm.call("squeue", "-h", "-j", self.number, "-t", "R", "-o", "%N").strip()
        return (
            set(self.slurm.call("scontrol", "show", "hostnames", line).split()) if line else set()
        )

    def runs_elsewhere(self) -> bool:
        """End the two minutes for which Slurm lets a requeued job wait; tell whether it runs."""
        self.slurm.call("scontrol", "update", f"jobid={self.number}", "starttime=now")
        return len(self.machines() - {self.faulty}) == 2

    @property
    def faulty(self) -> str:
        path = self.run / "faulty"
        return path.read_text().strip() if path.exists() else "unknown"

    def steps(self, machine: str) -> int:
        """Return the number of steps that a machine's first rank has logged."""
        logs = (self.job / "logs").glob(f"{machine}/*/attempt_0/*/stdout.log")
        return max((log.read_bytes().count(b" step ") for log in logs), default=0)

    def lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def check_nodes(self, nodes: list[str], port: int) -> dict[str, Any]:
        """Test nodes in pairs until nothing is left to test; put the result where it is read."""
        results = self.run / "results.csv"
        results.write_text("round,nodes,passed\n")
        while True:
            options = ["--nodes", ",".join(nodes), "--results", str(results), "--json"]
            command = [sys.executable, "-c", COMMAND, "diagnose", "nodes", *options]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            check: dict[str, Any] = json.loads(text)
            if check["done"]:
                (self.folder / "nodes.json").write_text(text)
                return check
            ports = [port := port + 1 for _ in check["pairs"]]
            with ThreadPoolExecutor() as pool:
                passed = list(pool.map(self.passes, check["pairs"], ports))
            with results.open("a") as table:
                for pair, is_good in zip(check["pairs"], passed, strict=True):
                    table.write(f"{check['round']},{' '.join(pair)},{is_good}\n")

    def passes(self, pair: list[str], port: int) -> bool:
        """Tell whether a small job on two nodes ends in time."""
        folder = self.run / f"pair-{port}"
        folder.mkdir()
        job = ["srun", "-N", "2", "-w", ",".join(pair), "--ntasks-per-node=1", "-c", "1"]
        job += [str(self.agent), *("1", str(port), str(folder), str(folder), "1", "3")]
        words = " ".join(map(shlex.quote, job))
        done = self.slurm.call("sh", "-c", f"timeout {PAIR_SECONDS} {words}; echo code=$?")
        return "code=0" in done

    def proposals(self, step: str) -> list[dict[str, Any]]:
        decisions = self.lines("decisions.jsonl")
        return [d for d in decisions if (d["ruling"], d["step"]) == ("propose", step)]

    @contextmanager
    def command(self, name: str, output: str, *arguments: str) -> Iterator[None]:
        """Run a command of forewarn next to the test."""
        with (
            (self.folder / output).open("wb") as out,
            (self.folder / f"{name}.err").open("wb") as error,
        ):
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments], stdout=out, stderr=error
            )
            try:
                yield
            finally:
                process.terminate()
                process.wait(60)

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Collect stacks and process states as an agent does."""
        samples, over = KernelSamples(self.run), threading.Event()

        def collect() -> None:
            while not over.wait(SAMPLE_SECONDS):
                samples.save(self.job / "kernel" / "samples.parquet")
                take_stacks(self.programs / "py-spy", pids(self.run), self.job / "stacks")

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@pytest.fixture
def hung(slurm: Any, tmp_path: Path, free_port: Callable[[], int]) -> Iterator[HungJob]:
    programs = torch_programs()
    if programs is None:
        skip_or_fail("no environment with torch: make it by .ci/setup_torch")
    job = HungJob(tmp_path, slurm, programs)
    job.put_files(free_port())
    assert main(["respond", "--new-ledger", "--once", "--config", job.config]) == 0
    with ExitStack() as stack:
        jobs, state = str(job.job.parent), str(tmp_path / "state.json")
        watch = ("diagnose", "watch", "--jobs", jobs, "--state", state, "--every", "2s", "--json")
        stack.enter_context(job.command("watch", "verdicts.jsonl", *watch))
        loop = ("respond", "--watch", "--config", job.config, "--json")
        stack.enter_context(job.command("respond", "decisions.jsonl", *loop))
        stack.enter_context(job.sampled())
        yield job


def test_hung_job_restarts_without_its_faulty_machine(
    hung: HungJob, free_port: Callable[[], int]
) -> None:
    hung.submit()
    hung.until(lambda: len(hung.machines()) == 2, "the job runs on two machines")
    hung.until(lambda: hung.steps(hung.faulty) >= 10, "it makes steps")
    hung.until(lambda: hung.steps(hung.faulty) >= 40, "a rank stops: the job hangs")

    def verdicts() -> list[dict[str, Any]]:
        """Return verdicts with a culprit: on a busy machine, samples may come after the logs."""
        lines = hung.lines("verdicts.jsonl")
        return [line for line in lines if line["kind"] == "hang" and line["culprits"]]

    hung.until(lambda: bool(verdicts()), "`diagnose watch` prints a verdict with a culprit")
    assert [culprit["machine"] for culprit in verdicts()[0]["culprits"]] == [hung.faulty]
    assert verdicts()[0]["rank"] == 3

    hung.until(lambda: bool(hung.proposals("avoid")), "`respond` proposes to avoid the machine")
    assert hung.proposals("drain") == []
    nodes = [*sorted(hung.machines()), "node-00006", "node-00007"]
    checked = hung.check_nodes(nodes, free_port())
    assert [n["node"] for n in checked["nodes"] if n["state"] == "failed"] == [hung.faulty]
    hung.note("tests of pairs of nodes find the machine, too")
    hung.until(lambda: bool(hung.proposals("drain")), "`respond` proposes a drain")
    proposal = hung.proposals("drain")[0]
    assert proposal["machine"] == hung.faulty
    assert "confirmed by" in proposal["reason"]
    number = str(proposal["incident"])
    assert main(["approve", number, "--config", hung.config, "--why", "a rank is stopped"]) == 0
    hung.note("a person approves it")
    hung.until(lambda: "DRAIN" in hung.slurm.line(hung.faulty), "Slurm drains the machine")
    hung.until(hung.runs_elsewhere, "the job runs again, on other machines")
    assert hung.faulty not in hung.machines()
    (new, *_) = sorted(hung.machines())
    hung.until(lambda: hung.steps(new) >= 100, "it makes more steps than before")
    assert "DRAIN" in hung.slurm.line(hung.faulty)  # until a person returns it
