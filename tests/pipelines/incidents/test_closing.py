from __future__ import annotations

from pathlib import Path

from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.incidents.closing import Closing
from forewarn.pipelines.incidents.response_site import ResponseSite
from forewarn.pipelines.incidents.site_check import SiteCheck
from forewarn.response.action import Action, ActionState
from forewarn.response.finding import Finding, FindingKind
from forewarn.response.machine import Machine, ServiceState
from forewarn.response.settings import ResponseSettings
from forewarn.response.step import DrainMode, Step

START = Nanoseconds(100 * DAY)
OVER = Nanoseconds(START + 25 * HOUR)


def _drained(tmp_path: Path, script: str) -> list[str]:
    """Drain a machine for a prediction, let its horizon pass, and return what its check left."""
    (tmp_path / "my.toml").write_text("")
    program = tmp_path / "check"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    names = ("m0", "train", "r0", None, "at_risk")
    until = Nanoseconds(START + DAY)
    finding = Finding(
        *("at_risk", "1", FindingKind.AT_RISK, "at_risk", "m0", START, until), gpu_serial="g0"
    )
    with ResponseSite.of(tmp_path / "my.toml").ledger() as ledger:
        ledger.take([finding], now=START)
        (incident,) = ledger.open_incidents()
        drain = Action(
            *(0, incident.id, *names, Step.DRAIN, DrainMode.FINISH, START, until, START),
            gpu_serial="g0",
        )
        action = ledger.act(drain, lambda _: None)
        assert isinstance(action, Action)
        drained = ledger.advance(action, ActionState.DRAINED, now=START)
        assert drained is not None
        driver = MemoryDriver({"m0": Machine("m0", ServiceState.DRAINED, gpus=8)}, START)
        check = SiteCheck((str(program),), timeout=10)
        for _ in range(2):  # a second call at once is another responder: it leaves the check alone
            closing = Closing(ledger, driver, check, ResponseSettings())
            closing.release(drained, incident, OVER)
        findings = [f for i in ledger.incidents() for f in i.findings if f.source == "check"]
        assert all((f.machine, f.gpu_serial) == ("m0", "g0") for f in findings)
        assert len({i.id for i in ledger.incidents()}) == 1
        return [change.detail for change in ledger.action_states(action.id)][2:] + [
            f.cause for f in findings
        ]


def test_a_check_that_fails_is_told_to_the_incident_of_the_gpu_once(tmp_path: Path) -> None:
    begun, failed, cause = _drained(tmp_path, "echo 2 links down; exit 2")
    assert (begun, failed, cause) == (
        "check begun",
        "check failed: 2 links down",
        "failed check",
    )


def test_a_check_that_says_nothing_proves_nothing(tmp_path: Path) -> None:
    assert _drained(tmp_path, "echo srun: no such host; exit 3") == ["check begun"]


def test_a_check_that_passes_gives_no_finding(tmp_path: Path) -> None:
    assert _drained(tmp_path, "exit 0")[:2] == ["check begun", "check passed: exit code 0"]
