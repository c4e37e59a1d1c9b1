"""Tests of the driver with a real Slurm and concurrent `scontrol` commands."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.incidents.schedulers.driver import DriverError, DriverTimeoutError
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.incidents.schedulers.slurm.slurm_driver import SlurmDriver
from forewarn.pipelines.incidents.schedulers.slurm.slurm_nodes import SlurmNode, parse_nodes
from forewarn.pipelines.incidents.schedulers.slurm.slurm_output import restart_refusal
from forewarn.response.state.action import Action
from forewarn.response.state.machine import ServiceState
from forewarn.response.state.step import Step

Drain = Callable[..., Action]
WHY = "at risk: 0.41 within 24 h (ecc=12, 'hot')"


def test_read_returns_the_fleet(slurm: Any) -> None:
    job = slurm.submit("-N2", "-w", "node-[00002-00003]")
    fleet = slurm.driver.read()
    machines = {machine.name: machine for machine in fleet.machines}
    assert len(machines) == 16
    assert {machine.gpus for machine in machines.values()} == {8}
    assert {machine.state for machine in machines.values()} == {ServiceState.IN_SERVICE}
    assert (machines["node-00003"].jobs, machines["node-00004"].jobs) == ((job,), ())
    assert (machines["node-00003"].pool, machines["node-00004"].pool) == ("big", "rest")
    assert (machines["node-00003"].rack, machines["node-00004"].rack) == ("r0", "r1")
    assert (machines["node-00007"].switch, machines["node-00008"].switch) == ("leaf1", "leaf2")
    assert [name for name in machines if machines[name].opted_out] == ["node-00015"]
    assert fleet.controller.startswith("20")
    assert slurm.driver.read().controller == fleet.controller


def test_busy_node_is_draining_then_drained(slurm: Any, drain: Drain) -> None:
    job = slurm.submit("-w", "node-00001")
    slurm.driver.apply(drain("node-00001"), why=WHY)
    machine = slurm.machine("node-00001")
    assert (machine.state, machine.jobs, machine.action) == (ServiceState.DRAINING, (job,), 17)
    assert machine.reason == "forewarn:17 at risk: 0.41 within 24 h (ecc 12, hot )"
    assert machine.reason_by == slurm.user
    assert abs(machine.reason_at - slurm.driver.read().at) < 3600e9
    slurm.call("scancel", job)
    slurm.until(lambda: slurm.machine("node-00001").state is ServiceState.DRAINED, "drained")
    assert slurm.machine("node-00001").jobs == ()
    slurm.driver.apply(drain("node-00001"), why="something else")  # set already
    assert slurm.machine("node-00001").reason == machine.reason


def manual_state(slurm: Any, name: str) -> SlurmNode:
    """Return the node's state without `NOT_RESPONDING`."""
    (node,) = parse_nodes(slurm.line(name))
    return replace(node, flags=node.flags - {"NOT_RESPONDING"})


def test_external_drain_is_not_changed(slurm: Any, drain: Drain) -> None:
    for change in ("state=drain", "state=down", "state=fail"):
        slurm.update("node-00004", change, "reason=Tom = looks at DIMM | State=IDLE")
        before = manual_state(slurm, "node-00004")
        for action in (drain("node-00004"), drain("node-00004", step=Step.AVOID)):
            with pytest.raises(DriverError, match="is drained externally: Tom = looks at DIMM"):
                slurm.driver.apply(action, why=WHY)
            slurm.driver.undo(action)
        assert manual_state(slurm, "node-00004") == before
        machine = slurm.machine("node-00004")
        assert (machine.action, machine.reason) == (None, "Tom = looks at DIMM | State=IDLE")
        slurm.update("node-00004", "state=resume")


@dataclass(frozen=True, slots=True)
class KeepingReasons(SlurmCommand):
    """Command that answers like Slurm 24.11: a resumed node keeps its last reason."""

    def ask(self, *command: str) -> str:
        answer = SlurmCommand.ask(self, *command)
        if command[:3] != ("scontrol", "show", "node") or "Reason=" in answer:
            return answer
        return f"{answer.rstrip()} Reason=Tom: DIMM [tom@2026-11-22T03:00:08] \n"


def test_returned_node_can_be_drained_again(slurm: Any, drain: Drain) -> None:
    slurm.update("node-00004", "state=drain", "reason=Tom: DIMM")
    slurm.update("node-00004", "state=resume")
    driver: SlurmDriver = replace(slurm.driver, command=KeepingReasons(str(slurm.conf)))
    driver.apply(drain("node-00004", step=Step.AVOID), why=WHY)
    driver.apply(drain("node-00004"), why=WHY)
    machine = slurm.machine("node-00004")
    assert (machine.action, machine.avoided) == (17, True)
    driver.undo(drain("node-00004", step=Step.AVOID))


def test_manual_resume_is_detected(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00005"), why=WHY)
    before = slurm.driver.read()
    slurm.update("node-00005", "state=resume")
    slurm.until(lambda: slurm.states() == {"idle"}, "resumed")
    fleet = slurm.driver.read()
    machine = fleet.machines[5]
    assert (machine.state, machine.action, machine.reason) == (ServiceState.IN_SERVICE, None, "")
    # Neither controller nor node restarted, therefore it was a manual change.
    assert (fleet.controller, machine.boot) == (before.controller, before.machines[5].boot)


def test_taken_over_drain_is_detected_and_kept(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00005"), why=WHY)
    slurm.update("node-00005", "state=drain", "reason=Tom has it")
    machine = slurm.machine("node-00005")
    assert (machine.state, machine.action) == (ServiceState.DRAINED, None)
    assert (machine.reason, machine.reason_by) == ("Tom has it", slurm.user)
    slurm.driver.undo(drain("node-00005"))
    with pytest.raises(DriverError, match="is not drained by action 17"):
        slurm.driver.evict(drain("node-00005"), ())
    assert slurm.machine("node-00005") == machine


def test_undo_keeps_down_node_down(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00006"), why=WHY)
    slurm.update("node-00006", "state=down", "reason=no power")
    slurm.driver.undo(drain("node-00006"))
    machine = slurm.machine("node-00006")
    assert (machine.state, machine.reason) == (ServiceState.DOWN, "no power")


def test_undo_removes_mark_of_down_node(slurm: Any, drain: Drain) -> None:
    slurm.update("node-00006", "state=down", "reason=no power")
    slurm.update("node-00006", "state=drain", "reason=forewarn:17 drained before")
    slurm.driver.undo(drain("node-00006"))
    machine = slurm.machine("node-00006")
    assert (machine.state, machine.action) == (ServiceState.DOWN, None)
    assert machine.reason == "was down when forewarn released it"
    assert "DRAIN" not in slurm.line("node-00006")


def test_undo_affects_its_own_action_only(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00007"), why=WHY)
    slurm.driver.undo(drain("node-00007", 16))
    assert slurm.machine("node-00007").action == 17
    slurm.driver.undo(drain("node-00007"))
    slurm.driver.undo(drain("node-00007"))
    slurm.until(lambda: slurm.states() == {"idle"}, "resumed")
    assert not slurm.machine("node-00007").out


def test_avoid_diverts_jobs_and_restores_weight(slurm: Any, drain: Drain) -> None:
    action = drain("node-00000", step=Step.AVOID)
    slurm.driver.apply(action, why=WHY)
    slurm.driver.apply(action, why=WHY)
    assert slurm.machine("node-00000").avoided
    assert not slurm.machine("node-00000").out
    slurm.submit("-N1")
    assert slurm.machine("node-00000").jobs == ()  # first in order and idle
    slurm.driver.undo(action)
    slurm.driver.undo(action)
    assert not slurm.machine("node-00000").avoided
    assert " Weight=7 " in slurm.line("node-00000")


@pytest.mark.parametrize("name", ["ALL", "node-[00000-00001]", "node-00000,node-00001", "nope", ""])
def test_name_must_be_a_single_node(slurm: Any, drain: Drain, name: str) -> None:
    calls: list[Callable[[], None]] = [
        lambda: slurm.driver.apply(drain(name), why=WHY),
        lambda: slurm.driver.reserve(drain(name)),
        lambda: slurm.driver.evict(drain(name), ("1",)),
    ]
    for call in calls:
        with pytest.raises(DriverError, match=r"node|drained by action"):
            call()
    assert slurm.states() == {"idle"}


def test_evict_requeues_jobs_of_its_node_only(slurm: Any, drain: Drain) -> None:
    here = slurm.submit("-w", "node-00008", "--array=1")
    array = slurm.submit("-w", "node-00009", "--array=1-3", "-n1")
    other = slurm.submit("-w", "node-00010")
    stays = slurm.submit("-w", "node-00008", "--no-requeue")
    slurm.driver.apply(drain("node-00008"), why=WHY)
    with pytest.raises(DriverError, match=f"requeue {stays}"):
        slurm.driver.evict(drain("node-00008"), (f"{here}_1", other, stays, "; reboot"))
    slurm.until(lambda: slurm.jobs()[f"{here}_1"] == "PD", "requeued")
    assert slurm.jobs() == {
        **{f"{here}_1": "PD", other: "R", stays: "R"},
        **{f"{array}_{number}": "R" for number in (1, 2, 3)},
    }
    slurm.driver.apply(drain("node-00009", 18), why=WHY)
    slurm.driver.evict(drain("node-00009", 18), (f"{array}_3",))
    slurm.until(lambda: slurm.jobs()[f"{array}_3"] == "PD", "requeued")
    assert [slurm.jobs()[f"{array}_{number}"] for number in (1, 2)] == ["R", "R"]


def test_notify_ignores_ended_jobs(slurm: Any, tmp_path: Path) -> None:
    output = tmp_path / "job.out"
    job = slurm.submit("-w", "node-00011", output=output)
    slurm.until(lambda: output.exists() and "started" in output.read_text(), "output")
    slurm.driver.notify((job, "99999"), 'node-00011 is "drained" at 05:00')
    slurm.until(lambda: "node-00011 is drained at 05:00" in output.read_text(), "message")


# --- checks ---------------------------------------------------------------------------------------


def test_reserved_node_runs_checks_only(slurm: Any, drain: Drain) -> None:
    action = drain("node-00012")
    with pytest.raises(DriverError, match="not drained by action 17"):
        slurm.driver.reserve(action)
    slurm.driver.apply(action, why=WHY)
    slurm.driver.reserve(action)
    slurm.driver.reserve(action)
    machine = slurm.machine("node-00012")
    assert (machine.out, machine.action) == (True, 17)
    where = ("-w", "node-00012", "-t", "1")
    assert "not available" in slurm.call("srun", *where, "--immediate=1", "true")
    ran = slurm.call("srun", *where, "--reservation=forewarn-17", "printenv", "SLURMD_NODENAME")
    assert "node-00012" in ran.splitlines()
    slurm.driver.undo(action)
    slurm.until(lambda: slurm.states() == {"idle"}, "released")
    assert "forewarn" not in slurm.call("scontrol", "show", "reservation")


def test_node_is_drained_again_after_failed_check(slurm: Any, drain: Drain) -> None:
    action = drain("node-00012")
    slurm.driver.apply(action, why=WHY)
    slurm.driver.reserve(action)
    slurm.driver.apply(action, why="check failed: 3 of 8 GPUs")
    slurm.until(lambda: slurm.machine("node-00012").state is ServiceState.DRAINED, "drained")
    assert slurm.machine("node-00012").reason == "forewarn:17 check failed: 3 of 8 GPUs"
    assert "forewarn" not in slurm.call("scontrol", "show", "reservation")


def test_later_action_takes_over_the_node(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00014", 16), why=WHY)
    slurm.driver.reserve(drain("node-00014", 16))
    slurm.driver.apply(drain("node-00014"), why=WHY)
    assert slurm.machine("node-00014").action == 17
    slurm.driver.undo(drain("node-00014", 16))  # remove the rest of the first action
    assert "forewarn" not in slurm.call("scontrol", "show", "reservation")
    assert slurm.machine("node-00014").action == 17


def test_external_reservation_is_not_changed(slurm: Any, drain: Drain) -> None:
    options = ("starttime=now", "duration=60", "flags=maint", "nodes=node-00013", "users=root")
    slurm.call("scontrol", "create", "reservation", "reservationname=firmware", *options)
    try:
        machine = slurm.machine("node-00013")
        assert (machine.out, machine.reason) == (True, "maintenance reservation firmware")
        with pytest.raises(
            DriverError, match="drained externally: maintenance reservation firmware"
        ):
            slurm.driver.apply(drain("node-00013"), why=WHY)
    finally:
        slurm.call("scontrol", "delete", "reservationname=firmware")


# --- killed or stopped controller -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KillControllerAfterChange(SlurmCommand):
    """Command that kills the controller as soon as it has acknowledged a change."""

    cluster: Any = None

    def change(self, *command: str) -> str:
        answer = SlurmCommand.change(self, *command)
        self.cluster.kill_controller()
        return answer


def test_drain_lost_with_controller_is_detected(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00001", 4216), why=WHY)
    slurm.wait_until_saved("forewarn:4216")  # a number that no other test uses
    before = slurm.driver.read()
    slurm.send("node-00001", signal.SIGSTOP)
    try:
        command = KillControllerAfterChange(str(slurm.conf), cluster=slurm)
        replace(slurm.driver, command=command).apply(drain("node-00002", 4217), why=WHY)
        survives = slurm.has_saved("forewarn:4217")  # usually not: it saves after seconds
        impatient = SlurmCommand(str(slurm.conf), timeout=1.0)
        with pytest.raises(DriverError):
            replace(slurm.driver, command=impatient).read()
        slurm.start_controller()
        fleet = slurm.driver.read()
        assert fleet.controller != before.controller
        first, second = fleet.machines[1:3]
        assert (first.state, first.action) == (ServiceState.UNKNOWN, 4216)
        assert second.action == (4217 if survives else None)
    finally:
        slurm.send("node-00001", signal.SIGCONT)
    slurm.driver.apply(drain("node-00002"), why=WHY)  # works while nodes are still unknown
    assert slurm.machine("node-00002").action == 17
    slurm.until(lambda: slurm.machine("node-00001").state is ServiceState.DRAINED, "known again")


@dataclass(frozen=True, slots=True)
class StopControllerBeforeChange(SlurmCommand):
    """Command that stops the controller before each change."""

    cluster: Any = None

    def change(self, *command: str) -> str:
        self.cluster.send("slurmctld", signal.SIGSTOP)
        return SlurmCommand(self.conf, timeout=5.0).change(*command)


def test_unanswered_change_may_be_made_later(slurm: Any, drain: Drain) -> None:
    commands = (
        StopControllerBeforeChange(str(slurm.conf), timeout=60.0, cluster=slurm),
        SlurmCommand(str(slurm.conf), timeout=1.0),
    )
    stopping, impatient = (replace(slurm.driver, command=command) for command in commands)
    try:
        with pytest.raises(DriverTimeoutError, match="no answer in 5 s"):
            stopping.apply(drain("node-00003"), why=WHY)
        with pytest.raises(DriverTimeoutError, match="no answer in 1 s"):
            impatient.read()
    finally:
        slurm.send("slurmctld", signal.SIGCONT)
    slurm.until(lambda: slurm.machine("node-00003").action == 17, "done later")


def restarted(slurm: Any, action: Action) -> bool:
    return slurm.driver.step_result(action, Step.RESTART, overdue=True) is not None


def test_restart_keeps_mark_until_return(slurm: Any, drain: Drain) -> None:
    name, action = "node-00003", drain("node-00003", step=Step.RESTART)
    slurm.driver.apply(action, why="xid 79")
    slurm.driver.carry_out(action, Step.RESTART)
    marks = set()

    def watch(done: Callable[[], bool], what: str) -> None:
        def seen() -> bool:
            machine = slurm.machine(name)
            marks.add((machine.action, machine.out))
            return done()

        slurm.until(seen, what)

    watch(lambda: "reboot issued" in slurm.line(name), "restart")
    assert not restarted(slurm, action)
    slurm.restart_node(name)
    watch(lambda: restarted(slurm, action), "return")
    assert marks == {(17, True)}
    slurm.driver.undo(action)
    assert "forewarn" not in slurm.call("scontrol", "show", "reservation", "-o")
    slurm.until(lambda: not slurm.machine(name).out, "service")


def test_lost_restart_of_checked_node_shows(
    slurm: Any, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    action, plain = drain("node-00005", step=Step.RESTART), SlurmCommand.change

    def lose_reboot(self: SlurmCommand, *command: str) -> str:
        if "reboot" in command:
            raise DriverTimeoutError("no answer")
        return plain(self, *command)

    slurm.driver.apply(action, why="xid 79")
    slurm.driver.reserve(action)
    slurm.until(lambda: restarted(slurm, action), "reservation")  # not drained any more
    monkeypatch.setattr(SlurmCommand, "change", lose_reboot)
    with pytest.raises(DriverTimeoutError):
        slurm.driver.carry_out(action, Step.RESTART)
    assert not restarted(slurm, action)
    assert slurm.machine("node-00005").action == 17
    slurm.driver.undo(action)


def test_restart_needs_own_drain_without_jobs(slurm: Any, drain: Drain) -> None:
    action = drain("node-00004", step=Step.RESTART)
    slurm.update("node-00004", "state=drain", "reason=Tom: DIMM")
    with pytest.raises(DriverError, match="not drained by action 17"):
        slurm.driver.carry_out(action, Step.RESTART)
    slurm.update("node-00004", "state=resume")
    slurm.submit("-w", "node-00004")
    slurm.driver.apply(action, why="")
    with pytest.raises(DriverError, match="or has jobs"):
        slurm.driver.carry_out(action, Step.RESTART)
    assert "forewarn" not in slurm.call("scontrol", "show", "reservation", "-o")


def test_restart_needs_program_and_long_timeout() -> None:
    program = "RebootProgram           = /sbin/reboot\n"
    assert "`RebootProgram` is not set" in restart_refusal("RebootProgram           = (null)\n")
    short = restart_refusal(f"{program}ResumeTimeout           = 60 sec\n")
    assert short == "slurm.conf: `ResumeTimeout` is 60 s, expected at least 1200 s"
    assert restart_refusal(f"{program}ResumeTimeout           = 1200 sec\n") == ""
