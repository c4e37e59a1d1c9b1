"""The driver against a real Slurm; a person types `scontrol` beside it."""

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
from forewarn.response.state.action import Action
from forewarn.response.state.machine import ServiceState
from forewarn.response.state.step import Step

Drain = Callable[..., Action]
WHY = "at risk: 0.41 within 24 h (ecc=12, 'hot')"


def test_it_reads_what_the_rest_of_forewarn_wants_to_know(slurm: Any) -> None:
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


def test_a_node_with_a_job_is_draining_and_then_drained(slurm: Any, drain: Drain) -> None:
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
    slurm.driver.apply(drain("node-00001"), why="something else")  # holds already
    assert slurm.machine("node-00001").reason == machine.reason


def marks(slurm: Any, name: str) -> SlurmNode:
    """Return what people and we set on a node; whether it just answers is left out."""
    (node,) = parse_nodes(slurm.line(name))
    return replace(node, flags=node.flags - {"NOT_RESPONDING"})


def test_a_drain_of_somebody_else_is_left_alone(slurm: Any, drain: Drain) -> None:
    for change in ("state=drain", "state=down", "state=fail"):
        slurm.update("node-00004", change, "reason=Tom = looks at DIMM | State=IDLE")
        before = marks(slurm, "node-00004")
        for action in (drain("node-00004"), drain("node-00004", step=Step.AVOID)):
            with pytest.raises(DriverError, match="a reason of somebody else: Tom = looks at DIMM"):
                slurm.driver.apply(action, why=WHY)
            slurm.driver.undo(action)
        assert marks(slurm, "node-00004") == before
        machine = slurm.machine("node-00004")
        assert (machine.action, machine.reason) == (None, "Tom = looks at DIMM | State=IDLE")
        slurm.update("node-00004", "state=resume")


@dataclass(frozen=True, slots=True)
class KeepingReasons(SlurmCommand):
    """Answers as Slurm 24.11 does: a node keeps its last reason when it is back in service."""

    def ask(self, *command: str) -> str:
        answer = SlurmCommand.ask(self, *command)
        if command[:3] != ("scontrol", "show", "node") or "Reason=" in answer:
            return answer
        return f"{answer.rstrip()} Reason=Tom: DIMM [tom@2026-11-22T03:00:08] \n"


def test_a_node_that_somebody_gave_back_is_ours_to_drain_again(slurm: Any, drain: Drain) -> None:
    slurm.update("node-00004", "state=drain", "reason=Tom: DIMM")
    slurm.update("node-00004", "state=resume")
    driver: SlurmDriver = replace(slurm.driver, command=KeepingReasons(str(slurm.conf)))
    driver.apply(drain("node-00004", step=Step.AVOID), why=WHY)
    driver.apply(drain("node-00004"), why=WHY)
    machine = slurm.machine("node-00004")
    assert (machine.action, machine.avoided) == (17, True)
    driver.undo(drain("node-00004", step=Step.AVOID))


def test_who_undoes_us_is_seen(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00005"), why=WHY)
    before = slurm.driver.read()
    slurm.update("node-00005", "state=resume")
    slurm.until(lambda: slurm.states() == {"idle"}, "resumed")
    fleet = slurm.driver.read()
    machine = fleet.machines[5]
    assert (machine.state, machine.action, machine.reason) == (ServiceState.IN_SERVICE, None, "")
    # Neither the controller nor the node is new, so it was a person.
    assert (fleet.controller, machine.boot) == (before.controller, before.machines[5].boot)


def test_who_takes_a_drain_over_is_seen_and_keeps_it(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00005"), why=WHY)
    slurm.update("node-00005", "state=drain", "reason=Tom has it")
    machine = slurm.machine("node-00005")
    assert (machine.state, machine.action) == (ServiceState.DRAINED, None)
    assert (machine.reason, machine.reason_by) == ("Tom has it", slurm.user)
    slurm.driver.undo(drain("node-00005"))
    with pytest.raises(DriverError, match="is not drained by action 17"):
        slurm.driver.evict(drain("node-00005"), ())
    assert slurm.machine("node-00005") == machine


def test_undo_leaves_a_node_down_that_somebody_has_set_down(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00006"), why=WHY)
    slurm.update("node-00006", "state=down", "reason=no power")
    slurm.driver.undo(drain("node-00006"))
    machine = slurm.machine("node-00006")
    assert (machine.state, machine.reason) == (ServiceState.DOWN, "no power")


def test_undo_of_a_node_that_went_down_leaves_no_mark_of_ours(slurm: Any, drain: Drain) -> None:
    slurm.update("node-00006", "state=down", "reason=no power")
    slurm.update("node-00006", "state=drain", "reason=forewarn:17 drained before")
    slurm.driver.undo(drain("node-00006"))
    machine = slurm.machine("node-00006")
    assert (machine.state, machine.action) == (ServiceState.DOWN, None)
    assert machine.reason == "was down when forewarn released it"
    assert "DRAIN" not in slurm.line("node-00006")


def test_undo_takes_back_our_drain_and_no_other_action_of_ours(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00007"), why=WHY)
    slurm.driver.undo(drain("node-00007", 16))
    assert slurm.machine("node-00007").action == 17
    slurm.driver.undo(drain("node-00007"))
    slurm.driver.undo(drain("node-00007"))
    slurm.until(lambda: slurm.states() == {"idle"}, "resumed")
    assert not slurm.machine("node-00007").out


def test_avoid_sends_jobs_elsewhere_and_gives_the_weight_back(slurm: Any, drain: Drain) -> None:
    action = drain("node-00000", step=Step.AVOID)
    slurm.driver.apply(action, why=WHY)
    slurm.driver.apply(action, why=WHY)
    assert slurm.machine("node-00000").avoided
    assert not slurm.machine("node-00000").out
    slurm.submit("-N1")
    assert slurm.machine("node-00000").jobs == ()  # the first, and free
    slurm.driver.undo(action)
    slurm.driver.undo(action)
    assert not slurm.machine("node-00000").avoided
    assert " Weight=7 " in slurm.line("node-00000")


@pytest.mark.parametrize("name", ["ALL", "node-[00000-00001]", "node-00000,node-00001", "nope", ""])
def test_a_name_is_that_of_one_node_or_refused(slurm: Any, drain: Drain, name: str) -> None:
    calls: list[Callable[[], None]] = [
        lambda: slurm.driver.apply(drain(name), why=WHY),
        lambda: slurm.driver.reserve(drain(name)),
        lambda: slurm.driver.evict(drain(name), ("1",)),
    ]
    for call in calls:
        with pytest.raises(DriverError, match=r"node|drained by action"):
            call()
    assert slurm.states() == {"idle"}


def test_evict_requeues_the_jobs_of_its_node_and_no_others(slurm: Any, drain: Drain) -> None:
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


def test_jobs_are_notified_and_one_that_has_ended_does_no_harm(slurm: Any, tmp_path: Path) -> None:
    output = tmp_path / "job.out"
    job = slurm.submit("-w", "node-00011", output=output)
    slurm.until(lambda: output.exists() and "begun" in output.read_text(), "output")
    slurm.driver.notify((job, "99999"), 'node-00011 is "drained" at 05:00')
    slurm.until(lambda: "node-00011 is drained at 05:00" in output.read_text(), "message")


# --- checks ---------------------------------------------------------------------------------------


def test_checks_run_on_a_node_that_no_other_job_gets(slurm: Any, drain: Drain) -> None:
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


def test_a_node_that_fails_its_check_is_drained_again(slurm: Any, drain: Drain) -> None:
    action = drain("node-00012")
    slurm.driver.apply(action, why=WHY)
    slurm.driver.reserve(action)
    slurm.driver.apply(action, why="check failed: 3 of 8 GPUs")
    slurm.until(lambda: slurm.machine("node-00012").state is ServiceState.DRAINED, "drained")
    assert slurm.machine("node-00012").reason == "forewarn:17 check failed: 3 of 8 GPUs"
    assert "forewarn" not in slurm.call("scontrol", "show", "reservation")


def test_a_later_action_of_ours_takes_a_node_over(slurm: Any, drain: Drain) -> None:
    slurm.driver.apply(drain("node-00014", 16), why=WHY)
    slurm.driver.reserve(drain("node-00014", 16))
    slurm.driver.apply(drain("node-00014"), why=WHY)
    assert slurm.machine("node-00014").action == 17
    slurm.driver.undo(drain("node-00014", 16))  # what is left of the first one
    assert "forewarn" not in slurm.call("scontrol", "show", "reservation")
    assert slurm.machine("node-00014").action == 17


def test_a_reservation_of_somebody_else_is_left_alone(slurm: Any, drain: Drain) -> None:
    options = ("starttime=now", "duration=60", "flags=maint", "nodes=node-00013", "users=root")
    slurm.call("scontrol", "create", "reservation", "reservationname=firmware", *options)
    try:
        machine = slurm.machine("node-00013")
        assert (machine.out, machine.reason) == (True, "maintenance reservation firmware")
        with pytest.raises(DriverError, match="somebody else: maintenance reservation firmware"):
            slurm.driver.apply(drain("node-00013"), why=WHY)
    finally:
        slurm.call("scontrol", "delete", "reservationname=firmware")


# --- a controller that dies or hangs --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KillingAfter(SlurmCommand):
    """Kills the controller as soon as it has acknowledged a change."""

    cluster: Any = None

    def change(self, *command: str) -> str:
        answer = SlurmCommand.change(self, *command)
        self.cluster.kill_controller()
        return answer


def test_a_drain_that_was_lost_with_the_controller_is_seen_to_be_gone(
    slurm: Any, drain: Drain
) -> None:
    slurm.driver.apply(drain("node-00001", 4216), why=WHY)
    slurm.saved("forewarn:4216")  # a number that no other test has left there
    before = slurm.driver.read()
    slurm.send("node-00001", signal.SIGSTOP)
    try:
        command = KillingAfter(str(slurm.conf), cluster=slurm)
        replace(slurm.driver, command=command).apply(drain("node-00002", 4217), why=WHY)
        survives = slurm.has_saved("forewarn:4217")  # mostly not: it saves after seconds
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
    slurm.driver.apply(drain("node-00002"), why=WHY)  # also while nodes are still unknown
    assert slurm.machine("node-00002").action == 17
    slurm.until(lambda: slurm.machine("node-00001").state is ServiceState.DRAINED, "known again")


@dataclass(frozen=True, slots=True)
class StoppingFirst(SlurmCommand):
    """Stops the controller before each change."""

    cluster: Any = None

    def change(self, *command: str) -> str:
        self.cluster.send("slurmctld", signal.SIGSTOP)
        return SlurmCommand(self.conf, timeout=5.0).change(*command)


def test_what_was_not_answered_may_have_been_done(slurm: Any, drain: Drain) -> None:
    commands = (
        StoppingFirst(str(slurm.conf), timeout=60.0, cluster=slurm),
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
