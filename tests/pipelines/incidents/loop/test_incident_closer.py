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
from forewarn.pipelines.incidents.loop.check_process import BEGUN, CheckJob, record_result
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
class Room:
    """Machines that were drained for a prediction, whose horizon is over."""

    ledger: Ledger
    driver: MemoryDriver
    check: SiteCheck
    actions: list[Action]

    def call(self, minutes: float = 0) -> None:
        """Look after all actions, as a call of the loop does."""
        now = Nanoseconds(int(OVER + minutes * MINUTE))
        closing = IncidentCloser(self.ledger, self.driver, self.check, ResponseSettings())
        for action in self.ledger.open_actions():
            incident = self.ledger.incident(action.incident)
            assert incident is not None
            closing.release(action, incident, now)

    def details(self, number: int = 1) -> list[str]:
        return [c.detail for c in self.ledger.action_states(number)][2:]

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a process that runs beside us."""
        end = time.monotonic() + 300
        while not holds():
            assert time.monotonic() < end, self.details()
            time.sleep(0.02)

    def findings(self) -> list[Finding]:
        return [f for i in self.ledger.incidents() for f in i.findings if f.source == "check"]


@pytest.fixture
def room_of(tmp_path: Path) -> Iterator[Callable[..., Room]]:
    """Return `room_of(script, n_machines=1, timeout=30)`."""
    (tmp_path / "my.toml").write_text("")
    with ResponseSite.from_config(tmp_path / "my.toml").ledger() as ledger:

        def made(script: str, n_machines: int = 1, timeout: float = 30) -> Room:
            program = tmp_path / "check"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            names = [f"m{number}" for number in range(n_machines)]
            actions = [_drained(ledger, name) for name in names]
            machines = {name: Machine(name, ServiceState.DRAINED, gpus=8) for name in names}
            check = SiteCheck((str(program), "{machine}"), timeout=timeout)
            return Room(ledger, MemoryDriver(machines, START), check, actions)

        yield made


def _drained(
    ledger: Ledger, machine: str, cause: str = "at_risk", step: Step = Step.DRAIN
) -> Action:
    until = Nanoseconds(START + DAY)
    finding = Finding(
        *(cause, machine, FindingKind(cause), cause, machine, START, until),
        gpu_serial=f"GPU of {machine}",
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


def test_a_check_that_fails_is_told_to_the_incident_of_the_gpu_once(
    room_of: Callable[..., Room],
) -> None:
    room = room_of("echo 2 links down; exit 2")
    room.call()
    room.call()  # at once again, as another responder would: it leaves the check alone
    room.until(lambda: len(room.details()) > 1)
    assert room.details() == ["check begun", "check failed: 2 links down"]
    room.call(60)
    assert room.details()[2:] == []  # a person has to look
    (finding,) = room.findings()
    assert (finding.machine, finding.gpu_serial) == ("m0", "GPU of m0")
    assert finding.cause == "failed check"
    assert len(room.ledger.incidents()) == 1


def test_a_check_that_says_nothing_proves_nothing_and_is_tried_again(
    room_of: Callable[..., Room],
) -> None:
    room = room_of("echo srun: no such host; exit 3", timeout=60)
    room.call()
    room.until(lambda: len(room.details()) > 1)
    unknown = ["check begun", "check unknown: srun: no such host"]
    assert room.details() == unknown
    room.call(1.9)
    assert room.details() == unknown
    room.call(2)
    room.until(lambda: len(room.details()) > 3)
    assert room.details() == 2 * unknown
    assert room.findings() == []
    assert room.driver.told.count("undo m0") == 0


def test_a_check_that_hangs_is_ended_and_is_no_failure(
    room_of: Callable[..., Room], tmp_path: Path
) -> None:
    room = room_of("sleep 1000", timeout=0.5)
    room.call()
    room.until(lambda: len(room.details()) > 1)
    assert room.details() == ["check begun", "check unknown: no result in 0.5 s"]
    assert all_end(str(tmp_path / "check"))
    assert room.findings() == []


def test_a_check_that_passes_gives_the_machine_back_in_a_later_call(
    room_of: Callable[..., Room],
) -> None:
    room = room_of("exit 0")
    room.call()
    room.until(lambda: len(room.details()) > 1)
    assert room.details() == ["check begun", "check passed: exit code 0"]
    assert room.driver.told == ["reserve m0"]
    room.call(1)
    assert room.driver.told == ["reserve m0", "undo m0"]
    assert room.findings() == []


def test_checks_run_beside_each_other_and_hold_no_call_back(
    room_of: Callable[..., Room], tmp_path: Path
) -> None:
    """Each waits for a file of the other: one after the other they would hang."""
    wait = f"touch {tmp_path}/$1; until test -e {tmp_path}/m0 -a -e {tmp_path}/m1; do sleep .02"
    room = room_of(f"{wait}; done", n_machines=2)
    room.call()
    room.until(lambda: all(len(room.details(number)) > 1 for number in (1, 2)))
    assert room.details(1)[1:] == room.details(2)[1:] == ["check passed: exit code 0"]


def test_a_check_that_ended_with_its_process_is_begun_again(
    room_of: Callable[..., Room], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = room_of("exit 0", timeout=60)
    with monkeypatch.context() as patched:
        patched.setattr(
            "forewarn.pipelines.incidents.loop.incident_closer.start_check", lambda _: None
        )
        room.call()  # nothing ever comes of it
    room.call(1)
    assert room.details() == ["check begun"]
    room.call(2)
    room.until(lambda: len(room.details()) > 2)
    assert room.details() == ["check begun", "check begun", "check passed: exit code 0"]


def test_what_a_check_says_counts_only_while_somebody_waits_for_it(
    room_of: Callable[..., Room],
) -> None:
    room = room_of("exit 0")
    begun = room.ledger.advance(room.actions[0], ActionState.DRAINED, now=OVER, detail=BEGUN)
    assert begun is not None
    values = (room.ledger.database.address, room.check.command, 30.0, "m0", 1)
    result = CheckResult(CheckState.CRITICAL, "late")
    record_result(
        room.ledger, CheckJob(*values, version=begun.version - 1, begun_at=START), result, OVER
    )
    assert room.details() == ["check begun"]
    room.ledger.advance(begun, ActionState.RELEASING, now=OVER, detail="by hand")
    record_result(
        room.ledger, CheckJob(*values, version=begun.version, begun_at=START), result, OVER
    )
    assert room.details() == ["check begun", "by hand"]
    assert room.findings() == []


@pytest.mark.parametrize(("cause", "back"), [("failure", False), ("at_risk", True)])
def test_what_was_taken_out_for_a_check_stays_out_where_the_site_has_none(
    cause: str, back: bool, room_of: Callable[..., Room]
) -> None:
    room = room_of("exit 0", n_machines=0)
    step = Step.CHECK if cause == "failure" else Step.DRAIN
    action = _drained(room.ledger, "m7", cause, step)
    room.driver.machines["m7"] = Machine(
        "m7", ServiceState.DRAINED, f"forewarn:{action.id} {cause}", gpus=8
    )
    closing = IncidentCloser(room.ledger, room.driver, None, ResponseSettings())
    for minutes in (0, 60):
        for open_action in room.ledger.open_actions():
            incident = room.ledger.incident(open_action.incident)
            assert incident is not None
            closing.release(open_action, incident, Nanoseconds(OVER + minutes * MINUTE))
    assert ("undo m7" in room.driver.told) == back
