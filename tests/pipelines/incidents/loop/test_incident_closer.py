from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.ended_processes import all_end
from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import CHECK_BEGUN
from forewarn.pipelines.incidents.loop.check_process import record_result
from forewarn.pipelines.incidents.loop.detached_process import AwaitedCommand
from forewarn.pipelines.incidents.loop.incident_closer import IncidentCloser
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.loop.site_check import CheckResult, CheckState, SiteCheck
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import DrainMode, Step

START = Nanoseconds(100 * DAY)
OVER = Nanoseconds(START + 25 * HOUR)


@dataclass(slots=True)
class Rig:
    """Machines that were drained for a prediction whose horizon has passed."""

    ledger: Ledger
    driver: MemoryDriver
    check: SiteCheck
    actions: list[Action]

    def call(self, minutes: float = 0) -> None:
        """Release actions as a round of the loop does."""
        now = Nanoseconds(int(OVER + minutes * MINUTE))
        closing = IncidentCloser(self.ledger, self.driver, self.check, ResponseSettings())
        for action in self.ledger.open_actions():
            incident = self.ledger.incident(action.incident)
            assert incident is not None
            closing.release(action, incident, now)

    def details(self, number: int = 1) -> list[str]:
        return [c.detail for c in self.ledger.action_states(number)][2:]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for the check process."""
        end = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < end, self.details()
            time.sleep(0.02)

    def findings(self) -> list[Finding]:
        return [f for i in self.ledger.incidents() for f in i.findings if f.source == "check"]


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Return `make_rig(script, n_machines=1, timeout=30)`."""
    (tmp_path / "my.toml").write_text("")
    with ResponseSite.from_config(tmp_path / "my.toml").ledger() as ledger:

        def make(script: str, n_machines: int = 1, timeout: float = 30) -> Rig:
            program = tmp_path / "check"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            names = [f"m{number}" for number in range(n_machines)]
            actions = [_drained(ledger, name) for name in names]
            machines = {name: Machine(name, ServiceState.DRAINED, gpus=8) for name in names}
            check = SiteCheck((str(program), "{machine}"), timeout=timeout)
            return Rig(ledger, MemoryDriver(machines, START), check, actions)

        yield make


def _drained(
    ledger: Ledger, machine: str, cause: str = "at_risk", step: Step = Step.DRAIN
) -> Action:
    until = Nanoseconds(START + DAY)
    finding = Finding(
        *(cause, machine, FindingKind(cause), cause, machine, START, until),
        gpu_serial=f"GPU-{machine}",
    )
    ledger.record_findings([finding], now=START)
    incident = ledger.open_incidents()[-1]
    drain = Action(
        *(0, incident.id, machine, "train", "r0", None, cause),
        *(step, DrainMode.FINISH, START, until, START),
        gpu_serial=incident.gpu_serial,
    )
    action = ledger.act(drain, lambda _: None)
    assert isinstance(action, Action)
    drained = ledger.advance(action, ActionState.DRAINED, now=START)
    assert drained is not None
    return drained


def test_failed_check_becomes_one_finding(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig("echo 2 links down; exit 2")
    rig.call()
    rig.call()  # as a second responder: the check is not started again
    rig.wait_until(lambda: len(rig.details()) > 1)
    assert rig.details() == ["check begun", "check failed: 2 links down"]
    rig.call(60)
    assert rig.details()[2:] == []  # a person has to look
    (finding,) = rig.findings()
    assert (finding.machine, finding.gpu_serial) == ("m0", "GPU-m0")
    assert finding.cause == "failed check"
    assert len(rig.ledger.incidents()) == 1


def test_unknown_check_result_is_retried(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig("echo srun: no such host; exit 3", timeout=60)
    rig.call()
    rig.wait_until(lambda: len(rig.details()) > 1)
    unknown = ["check begun", "check unknown: srun: no such host"]
    assert rig.details() == unknown
    rig.call(1.9)
    assert rig.details() == unknown
    rig.call(2)
    rig.wait_until(lambda: len(rig.details()) > 3)
    assert rig.details() == 2 * unknown
    assert rig.findings() == []
    assert rig.driver.calls.count("undo m0") == 0


def test_hanging_check_is_killed_without_finding(
    make_rig: Callable[..., Rig], tmp_path: Path
) -> None:
    rig = make_rig("sleep 1000", timeout=0.5)
    rig.call()
    rig.wait_until(lambda: len(rig.details()) > 1)
    assert rig.details() == ["check begun", "check unknown: no result within 0.5 s"]
    assert all_end(str(tmp_path / "check"))
    assert rig.findings() == []


def test_passed_check_releases_machine_in_later_call(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig("exit 0")
    rig.call()
    rig.wait_until(lambda: len(rig.details()) > 1)
    assert rig.details() == ["check begun", "check passed: exit code 0"]
    assert rig.driver.calls == ["reserve m0"]
    rig.call(1)
    assert rig.driver.calls == ["reserve m0", "undo m0"]
    assert rig.findings() == []


def test_checks_run_concurrently(make_rig: Callable[..., Rig], tmp_path: Path) -> None:
    """Each check waits for a file of the other: run sequentially, they would hang."""
    wait = f"touch {tmp_path}/$1; until test -e {tmp_path}/m0 -a -e {tmp_path}/m1; do sleep .02"
    rig = make_rig(f"{wait}; done", n_machines=2)
    rig.call()
    rig.wait_until(lambda: all(len(rig.details(number)) > 1 for number in (1, 2)))
    assert rig.details(1)[1:] == rig.details(2)[1:] == ["check passed: exit code 0"]


def test_lost_check_process_is_started_again(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig("exit 0", timeout=60)
    with monkeypatch.context() as patched:
        patched.setattr(
            "forewarn.pipelines.incidents.loop.incident_closer.start_check", lambda _: None
        )
        rig.call()  # never returns a result
    rig.call(1)
    assert rig.details() == ["check begun"]
    rig.call(2)
    rig.wait_until(lambda: len(rig.details()) > 2)
    assert rig.details() == ["check begun", "check begun", "check passed: exit code 0"]


def test_outdated_check_result_is_ignored(
    make_rig: Callable[..., Rig],
) -> None:
    rig = make_rig("exit 0")
    started = rig.ledger.advance(rig.actions[0], ActionState.DRAINED, now=OVER, detail=CHECK_BEGUN)
    assert started is not None
    values = (rig.ledger.database.address, rig.check.command, 30.0, "m0", 1)
    result = CheckResult(CheckState.CRITICAL, "late")
    record_result(
        rig.ledger,
        AwaitedCommand(*values, version=started.version - 1, begun_at=START),
        result,
        OVER,
    )
    assert rig.details() == ["check begun"]
    rig.ledger.advance(started, ActionState.RELEASING, now=OVER, detail="by hand")
    record_result(
        rig.ledger, AwaitedCommand(*values, version=started.version, begun_at=START), result, OVER
    )
    assert rig.details() == ["check begun", "by hand"]
    assert rig.findings() == []


@pytest.mark.parametrize(("cause", "back"), [("failure", False), ("at_risk", True)])
def test_machine_stays_out_without_site_check(
    cause: str, back: bool, make_rig: Callable[..., Rig]
) -> None:
    rig = make_rig("exit 0", n_machines=0)
    step = Step.CHECK if cause == "failure" else Step.DRAIN
    action = _drained(rig.ledger, "m7", cause, step)
    rig.driver.machines["m7"] = Machine(
        "m7", ServiceState.DRAINED, f"forewarn:{action.id} {cause}", gpus=8
    )
    closing = IncidentCloser(rig.ledger, rig.driver, None, ResponseSettings())
    for minutes in (0, 60):
        for open_action in rig.ledger.open_actions():
            incident = rig.ledger.incident(open_action.incident)
            assert incident is not None
            closing.release(open_action, incident, Nanoseconds(OVER + minutes * MINUTE))
    assert ("undo m7" in rig.driver.calls) == back
