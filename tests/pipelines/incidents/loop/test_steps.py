from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.ended_processes import all_end
from tests.pipelines.incidents.loop.test_responder import FixedClock
from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.time_units import DAY, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.loop.site_command import CommandResult
from forewarn.pipelines.incidents.loop.step_process import StepJob, record_step
from forewarn.response.state.decision import Ruling
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.machine import Machine, ServiceState

START = Nanoseconds(1_740_787_200 * SECOND)
CONFIG = """
[respond]
driver = "slurm"
first_day = "1min"
policy = ["site.toml"]
check = ["{folder}/check"]
check_timeout = "1min"
[respond.pools.train]
mode = "act"
share = 0.5
rack = 4
{more}
"""
STEP = """
[respond.pools.train.steps.{step}]
command = ["{folder}/{step}", "{{machine}}", "{{gpu_serial}}"]
timeout = "{timeout}"
needs_idle = {needs_idle}
"""
START_STEP = "forewarn.pipelines.incidents.loop.step_runner.start_step"


@dataclass(slots=True)
class Rig:
    """A site whose steps are scripts that log their calls."""

    folder: Path
    responder: Responder
    driver: MemoryDriver
    clock: FixedClock
    ledger: Ledger
    alerts: list[str] = field(default_factory=list)

    def once(self, minutes: float = 0) -> None:
        self.clock.at = Nanoseconds(int(self.clock.at + minutes * MINUTE))
        self.driver.now = self.clock.at
        self.responder.once()

    def report(self, cause: str, machine: str = "m0") -> None:
        finding = Finding(
            *("test", f"{cause} {machine} {self.clock.at}", FindingKind.XID, cause, machine),
            *(self.clock.at, Nanoseconds(self.clock.at + DAY)),
            gpu_serial=f"GPU-{machine}",
        )
        self.ledger.record_findings([finding], now=self.clock.at)

    def drain(self, cause: str = "xid 119") -> None:
        """Drain the machine for a cause, and begin the step if that is due."""
        self.report(cause)
        self.once(20)
        self.once(1)

    def settle(self) -> None:
        """Run rounds, a minute apart, until nothing changes any more."""
        changed_at = self.clock.at
        while self.clock.at - changed_at < 5 * MINUTE:
            n_changes = len(self.ledger.action_states(1))
            last = [c.detail for c in self.ledger.action_states(1)][-1]
            if last.startswith("check begun") or " begun: " in last:
                self._wait(lambda last=last: self.details()[-1] != last)  # type: ignore[misc]
            self.once(1)
            if len(self.ledger.action_states(1)) > n_changes:
                changed_at = self.clock.at

    def _wait(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < end, self.details()
            time.sleep(0.02)

    def details(self) -> list[str]:
        words = ("reset", "restart", "replace", "check")
        rows = self.ledger.action_states(1)
        return [row.detail for row in rows if row.detail.startswith(words)]

    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def reason(self) -> str:
        decision = self.ledger.incidents()[-1].decision
        assert decision is not None
        return decision.reason


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Return `make_rig(reset="exit 0", check="exit 0", timeout="1min", pool="", **scripts)`."""
    with ExitStack() as stack:

        def make(
            *,
            check: str = "exit 0",
            timeout: str = "1min",
            pool: str = "",
            needs_idle: bool = True,
            jobs: tuple[str, ...] = (),
            policy: str = "",
            **scripts: str,
        ) -> Rig:
            (tmp_path / "site.toml").write_text(policy)
            more = pool
            for name, script in {"check": check, **scripts}.items():
                program = tmp_path / name
                log = "" if name == "check" else f'echo "{name} $@" >> {tmp_path}/calls\n'
                program.write_text(f"#!/bin/sh\n{log}{script}\n")
                program.chmod(0o755)
                if name != "check":
                    values = {"needs_idle": str(needs_idle).lower(), "timeout": timeout}
                    more += STEP.format(step=name, folder=tmp_path, **values)
            config = tmp_path / "my.toml"
            config.write_text(CONFIG.format(folder=tmp_path, more=more))
            site = ResponseSite.from_config(config)
            machines = {
                f"m{i}": Machine(
                    *(f"m{i}", ServiceState.IN_SERVICE),
                    **{"gpus": 8, "pool": "train", "rack": "r0", "boot": "1"},  # type: ignore
                    jobs=jobs if i == 0 else (),
                )
                for i in range(4)
            }
            driver, clock = MemoryDriver(machines, START), FixedClock(START)
            ledger = stack.enter_context(site.new_ledger())
            responder = Responder(site, ledger, site.policy(), driver, clock)
            rig = Rig(tmp_path, responder, driver, clock, ledger)
            responder.warn = lambda _, text: rig.alerts.extend([text] * ("a person" in text))
            rig.once()
            rig.once(5)
            return rig

        yield make


def test_successful_step_returns_machine(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(reset="echo done")
    rig.drain()
    rig.settle()
    assert rig.calls() == ["reset m0 GPU-m0"]
    assert rig.details() == [
        f"reset begun: {rig.folder}/reset",
        "reset succeeded: done",
        *("check begun", "check passed: exit code 0"),
    ]
    assert rig.driver.machines["m0"].state is ServiceState.IN_SERVICE
    assert rig.alerts == []


@pytest.mark.parametrize("script", ["echo busy; exit 1", "sleep 1000"])
def test_failed_step_leads_to_harder_one(script: str, make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(reset=script, restart="exit 0", timeout="2s")
    rig.drain()
    rig.settle()
    assert [call.split()[0] for call in rig.calls()] == ["reset", "restart"]
    assert rig.details()[1] in ("reset failed: busy", "reset failed: no result within 2 s")
    assert rig.driver.machines["m0"].state is ServiceState.IN_SERVICE
    assert all_end(str(rig.folder / "reset"))


def test_failures_never_lead_to_replace(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(reset="exit 1", restart="exit 1", replace="exit 0", pool='replace = "act"')
    rig.drain()
    rig.settle()
    assert [call.split()[0] for call in rig.calls()] == ["reset", "restart"]
    (alert,) = rig.alerts
    assert alert == "a person must look at m0: restart had no effect (exit code 1)"
    assert rig.driver.machines["m0"].state is ServiceState.DRAINED
    assert alert in rig.reason()


def test_failed_check_leads_to_harder_step(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(
        check="test -e $0.restarted || exit 2",
        reset="exit 0",
        restart="touch ${0%/*}/check.restarted",
    )
    rig.drain()
    rig.settle()
    assert [call.split()[0] for call in rig.calls()] == ["reset", "restart"]
    assert rig.driver.machines["m0"].state is ServiceState.IN_SERVICE


def test_policy_limits_harder_steps(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(reset="exit 1", restart="exit 0", policy='[xids.119]\nat_most = "reset"\n')
    rig.drain()
    rig.settle()
    assert rig.calls() == ["reset m0 GPU-m0"]
    assert rig.alerts == ["a person must look at m0: reset had no effect (exit code 1)"]


def test_step_waits_until_machine_is_empty(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(reset="exit 0", jobs=("17",), policy='[xids.119]\nmode = "finish"\n')
    rig.drain()
    rig.once(5)
    assert rig.driver.machines["m0"].state is ServiceState.DRAINING
    assert rig.details() == []
    rig.driver.end_jobs("m0")
    rig.settle()
    assert rig.calls() == ["reset m0 GPU-m0"]


def test_step_may_run_with_jobs(make_rig: Callable[..., Rig]) -> None:
    policy = '[xids.119]\nmode = "finish"\n'
    rig = make_rig(reset="exit 0", jobs=("17",), needs_idle=False, policy=policy)
    rig.drain()
    rig.settle()
    assert rig.details()[1:] == ["reset succeeded: exit code 0"]  # the check needs it empty
    rig.driver.end_jobs("m0")
    rig.settle()
    assert rig.driver.machines["m0"].state is ServiceState.IN_SERVICE


def test_person_is_asked_without_command(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    rig.drain()
    words = "a person must reset GPU GPU-m0 of m0"
    assert rig.alerts == [words]
    assert f"{words} (asked at 2025-03-01T00:26:00" in rig.reason()
    rig.once(30)
    metrics = rig.responder.metrics.text().decode()
    assert 'person_wait_seconds{pool="train",step="reset"} 1800.0' in metrics
    assert (rig.alerts, len(rig.details())) == ([words], 1)


@pytest.mark.parametrize("lost", ["answer", "process"])
def test_lost_step_is_never_repeated(
    lost: str, make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(reset="exit 0", restart="exit 0")
    begun: list[StepJob] = []
    monkeypatch.setattr(START_STEP, begun.append)
    rig.drain()
    (job,) = begun
    rig.once(1)
    rig.once(10)
    words = "a person must find out whether the reset of m0 was done"
    rig.once(1)
    assert rig.alerts == [words]
    assert len(begun) == 1
    if lost == "answer":  # it comes after all
        record_step(rig.ledger, job, CommandResult(0, "late"), rig.clock.at)
    rig.once(60)
    assert rig.details()[1:] == [
        "reset unknown: no result was recorded",
        f"reset handed over: {words}",
    ]
    assert len(begun) == 1


def test_command_that_cannot_start_asks_person(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(reset="exit 0", restart="exit 0")
    (rig.folder / "reset").unlink()
    rig.drain()
    rig.settle()
    assert rig.details()[1] == f"reset unknown: {rig.folder}/reset: No such file or directory"
    assert rig.calls() == []
    assert rig.alerts == ["a person must find out whether the reset of m0 was done"]


def test_kill_switch_prevents_steps(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(reset="exit 0")
    rig.report("xid 119")
    rig.once(20)
    (rig.folder / "respond.stop").write_text("")
    rig.once(1)
    rig.once(1)
    assert rig.details() == []
    (rig.folder / "respond.stop").unlink()
    rig.once(1)
    rig.settle()
    assert rig.calls() == ["reset m0 GPU-m0"]


@pytest.mark.parametrize("approved", [False, True])
def test_replace_needs_approval(approved: bool, make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(replace="exit 0", policy='[xids.119]\nstep = "replace"\n')
    rig.drain()
    rig.settle()
    assert rig.calls() == []
    assert rig.alerts == ["a person must approve to replace GPU GPU-m0 of m0"]
    (incident,) = rig.ledger.open_incidents()
    assert incident.decision is not None
    assert incident.decision.ruling is Ruling.PROPOSE
    if approved:
        Operator(rig.ledger, "ann", rig.clock.at).approve(incident.id)
    rig.once(1)
    rig.settle()
    assert rig.calls() == (["replace m0 GPU-m0"] if approved else [])


def test_pool_may_replace_without_approval(make_rig: Callable[..., Rig]) -> None:
    policy = '[xids.119]\nstep = "replace"\n'
    rig = make_rig(replace="exit 0", policy=policy, pool='replace = "act"')
    rig.drain()
    rig.settle()
    assert rig.calls() == ["replace m0 GPU-m0"]


RESTART = "[respond.pools.train.steps.restart]\nscheduler = true\n"


def test_scheduler_restarts_machine_once(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(pool=RESTART)
    rig.drain("xid 79")
    rig.once(5)
    assert rig.details() == ["restart begun: by the scheduler"]
    rig.driver.restarted_machines.add("m0")
    rig.once(1)
    rig.settle()
    assert rig.details()[1] == "restart succeeded: it answers again"
    assert rig.driver.calls.count("restart by scheduler m0") == 1
    assert rig.driver.machines["m0"].state is ServiceState.IN_SERVICE


@pytest.mark.parametrize("refusal", ["`RebootProgram` is not set", ""])
def test_person_is_asked_about_missing_restart(refusal: str, make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(pool=RESTART)
    rig.driver.restart_refusal = refusal
    rig.drain("xid 79")
    for _ in range(9):
        rig.once(5)
    lost = "a person must find out whether the restart of m0 was done"
    refused = f"a person must look at m0: restart had no effect ({refusal})"
    assert rig.alerts == [refused if refusal else lost]
    assert rig.driver.calls.count("restart by scheduler m0") == 1
    assert rig.driver.machines["m0"].state is ServiceState.DRAINED
