"""Crash test of `forewarn respond --once`: killed between any two steps, and run again.

    python crash_test_loop.py CONFIG URL STRIDE   # prints a line of JSON per crash

A step is a commit of the ledger or a change by the driver, with a crash point before and after. The
scheduler is a file that survives the processes. With a real Slurm or Kubernetes in the
configuration, only its changes are steps, and the scenario ends with a person's undo.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event
from tests.pipelines.incidents.ledger.small_responder import remove
from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.ledger.database import LedgerDatabase
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop import (
    check_process,
    decision_output,
    detached_process,
    incident_closer,
    responder,
)
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.schedulers.kubernetes import api_server
from forewarn.pipelines.incidents.schedulers.slurm import slurm_driver as slurm
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.runtime.clock import SystemClock
from forewarn.response.state.action import ActionState
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.machine import Machine, ServiceState

LOOP = Path(__file__)
CONFIG = """
[respond]
ledger = "{url}"
driver = "{driver}"
policy = ["policy.toml"]
first_day = "1ms"
check = ["true"]
{more}
[respond.pools.rest]
{pool}
mode = "act"
machines = 1
"""
POLICY = '[kinds.at_risk]\nlikely = { probability = 0.3, step = "drain" }\n'
PRELOADED = (decision_output, responder)  # imported once, not in each child
START = Nanoseconds(1_740_787_200 * SECOND)
HOLDING = (ActionState.HOLDING, ActionState.DRAINED)
NAMES = ("node-00001", "node-00002")
STEPS = mmap.mmap(-1, 16)  # shared with children: steps so far, and the step to crash at


def step() -> None:
    """Count a step, and crash at the selected one."""
    done = int.from_bytes(STEPS[:8], "little") + 1
    STEPS[:8] = done.to_bytes(8, "little")
    if done == int.from_bytes(STEPS[8:], "little"):
        os.kill(os.getpid(), signal.SIGKILL)


class FileDriver(MemoryDriver):
    """Simulated scheduler whose state in a file survives crashes."""

    path: Path

    def load(self) -> None:
        rows = json.loads(self.path.read_text())
        self.calls = rows["calls"]
        self.machines = {
            row["name"]: Machine(
                **{**row, "state": ServiceState(row["state"]), "jobs": tuple(row["jobs"])}
            )
            for row in rows["machines"]
        }

    def save(self) -> None:
        rows = {"calls": self.calls, "machines": [asdict(m) for m in self.machines.values()]}
        self.path.with_suffix(".new").write_text(json.dumps(rows))
        self.path.with_suffix(".new").rename(self.path)

    def read(self) -> Any:
        self.load()
        return super().read()


def _with_steps(name: str) -> Callable[..., None]:
    plain = getattr(MemoryDriver, name)

    def stepped(self: FileDriver, *arguments: Any, **named: Any) -> None:
        step()
        self.load()
        try:
            plain(self, *arguments, **named)
        finally:
            self.save()
        step()

    return stepped


for change in ("apply", "reserve", "evict", "undo", "notify"):
    setattr(FileDriver, change, _with_steps(change))


def file_driver(path: Path, now: Nanoseconds = START) -> FileDriver:
    driver = FileDriver({}, now)
    driver.path = path
    return driver


class Scenario:
    """A site with findings, manual actions and rounds of the loop."""

    def __init__(self, config: Path, url: str) -> None:
        self.config, self.url, self.now = config, url, START
        self.machines = config.with_name("machines.json")
        text = config.read_text()
        self.real = "slurm_conf" in text or "kubeconfig" in text

    def begin(self) -> None:
        remove(self.url)
        Ledger.open(self.url).close()
        self.wait_until_idle()
        if not self.real:
            driver = file_driver(self.machines)
            for name in NAMES:
                machine = Machine(name, ServiceState.IN_SERVICE, gpus=8, pool="rest", rack=name)
                driver.machines[name] = machine
            driver.machines[NAMES[0]] = replace(driver.machines[NAMES[0]], jobs=("17",))
            driver.save()

    def wait_until_idle(self) -> None:
        """Wait until all nodes have reported to Slurm; a resumed node takes a moment."""
        if self.real:
            driver = ResponseSite.from_config(self.config).driver()
            assert driver is not None
            for _ in range(1200):
                if all(m.state is not ServiceState.UNKNOWN for m in driver.read().machines):
                    return
                time.sleep(0.05)
            raise AssertionError("a node did not report within a minute")

    def call(self, minutes: float = 0) -> None:
        """Advance the clock and run the loop; if it is killed, run it again as cron would."""
        self.wait_until_idle()
        self.now = Nanoseconds(int(self.now + minutes * MINUTE))
        if not self._child(self._respond):
            assert self._child(self._respond)

    def _respond(self) -> None:
        now, machines = self.now, self.machines
        SystemClock.now = lambda _: now  # type: ignore
        LedgerDatabase.clock = lambda _: now  # type: ignore
        if self.real:
            plain = SlurmCommand.change

            def change(self: SlurmCommand, *command: str) -> str:
                step()
                answer = plain(self, *command)
                step()
                return answer

            SlurmCommand.change = change  # type: ignore[method-assign]
            slurm.controller_time = lambda _: now  # type: ignore
            _crash_at_requests(now)
        else:
            ResponseSite.driver = lambda _: file_driver(machines, now)  # type: ignore
            event.listen(Engine, "commit", lambda _: step())
            event.listen(Engine, "begin", lambda _: step())
        incident_closer.start_check = check_in_process  # type: ignore[attr-defined]
        assert main(["respond", "--once", "--config", str(self.config)]) == 0

    def _child(self, work: Callable[[], None]) -> bool:
        """Run work in a child process; return False if it was killed."""
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            try:
                work()
                os._exit(0)
            except BaseException as error:
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFEXITED(status)

    def report(self, machine: str, cause: str) -> None:
        kind = FindingKind.XID if cause.startswith("xid") else FindingKind.AT_RISK
        until = Nanoseconds(self.now + DAY)
        finding = Finding(
            *("test", f"{cause} {machine}", kind, cause, machine, self.now, until),
            gpu_serial=f"GPU-{machine}",
            evidence={"probability": 0.9},
        )
        with Ledger.open(self.url) as ledger:
            ledger.record_findings([finding], now=self.now)

    def undo(self, machine: str) -> None:
        with Ledger.open(self.url) as ledger:
            (incident,) = ledger.incidents(machine=machine)
            Operator(ledger, "ann", self.now).undo(incident.id)

    def end_jobs(self, machine: str) -> None:
        if not self.real:
            driver = file_driver(self.machines)
            driver.load()
            driver.end_jobs(machine)
            driver.save()

    def summary(self) -> dict[str, Any]:
        self.wait_until_idle()
        with Ledger.open(self.url) as ledger:
            states = {
                f"{i.machine} {a.step}": list(
                    dict.fromkeys(c.state.value for c in ledger.action_states(a.id))
                )
                for i in sorted(ledger.incidents(), key=lambda i: i.machine)
                for a in i.actions
            }
            n_actions = sum(len(i.actions) for i in ledger.incidents())
            drains = [a for a in ledger.open_actions() if a.step.isolates]
        if self.real:
            driver = ResponseSite.from_config(self.config).driver()
            assert driver is not None
            machines, calls = driver.read().machines, []
        else:
            memory = file_driver(self.machines)
            memory.load()
            machines, calls = tuple(memory.machines.values()), memory.calls
        marked = {(m.name, m.action) for m in machines if m.action is not None}
        holding = {(a.machine, a.id) for a in drains if a.state in HOLDING}
        return {
            "states": states,
            "n_actions": n_actions,
            "consistent": holding <= marked <= {(a.machine, a.id) for a in drains},
            "out": sorted(m.name for m in machines if m.out and m.name in NAMES),
            "calls": calls,
        }


def _crash_at_requests(now: Nanoseconds) -> None:
    """Make each change through the API server of Kubernetes a step."""
    plain = api_server.ApiServer._request

    def request(self: api_server.ApiServer, method: str, *arguments: Any, **more: Any) -> Any:
        if method == "GET":
            return plain(self, method, *arguments, **more)
        step()
        answer = plain(self, method, *arguments, **more)
        step()
        return answer

    api_server.ApiServer._request = request  # type: ignore[method-assign]
    api_server._server_time = lambda _: now  # type: ignore[assignment]


def check_in_process(job: detached_process.AwaitedCommand) -> None:
    """Run the check in this process, so that it has crash points."""
    step()
    check_process._run(job)
    step()


def play(scenario: Scenario) -> list[bool]:
    """Play drains by an Xid and by a prediction, a person's undo, a check and releases.

    Returns whether ledger and scheduler were consistent after each round.
    """
    consistent = []

    def call(minutes: float = 0) -> None:
        scenario.call(minutes)
        consistent.append(scenario.summary()["consistent"])

    scenario.begin()
    call()
    scenario.report(NAMES[0], "xid 79")
    if not scenario.real:
        scenario.report(NAMES[1], "at_risk")
        call(5)
    call(20)
    scenario.end_jobs(NAMES[0])
    call(1)
    scenario.undo(NAMES[0])
    call(1)
    call(1)
    if not scenario.real:  # a check in Slurm would need its own job
        call(26 * HOUR / MINUTE)
        call(30)  # a lost check is restarted after twice its time limit
        call(1)
        call(1)
    return consistent


def run_crashes(config: Path, url: str, stride: int) -> None:
    scenario, at, killed = Scenario(config, url), 1, True
    while killed:
        STEPS[:8], STEPS[8:] = bytes(8), at.to_bytes(8, "little")
        consistent = play(scenario)
        killed = int.from_bytes(STEPS[:8], "little") >= at
        steps = int.from_bytes(STEPS[:8], "little")
        line = {"step": at, "steps": steps, "killed": killed, "consistent": all(consistent)}
        line |= scenario.summary()
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()
        at += stride


def crash_results(
    folder: Path,
    url: str,
    stride: str,
    more: str = "",
    *,
    driver: str = "slurm",
    pool: str = 'partition = "gpu"',
) -> list[dict[str, Any]]:
    """Return the state of ledger and scheduler after each crash; the last entry has no crash."""
    (folder / "policy.toml").write_text(POLICY)
    config = folder / "my.toml"
    config.write_text(CONFIG.format(url=url, more=more, driver=driver, pool=pool))
    command = [sys.executable, str(LOOP), str(config), url, stride]
    environment = os.environ | {"PYTHONPATH": str(LOOP.parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    run_crashes(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
