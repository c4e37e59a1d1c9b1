"""Tests of the sudo rules: they permit the driver's commands and nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.incidents.schedulers.slurm.slurm_driver import SlurmDriver
from forewarn.response.state.action import Action
from forewarn.response.state.step import DrainMode, Step

RULES = Path(__file__).parents[5] / "deploy" / "slurm" / "forewarn.sudoers"
MOMENT = Nanoseconds(0)
DRAIN = Action(17, 1, "n1", "p", None, None, "c", Step.DRAIN, DrainMode.NOW, MOMENT, MOMENT, MOMENT)
NODE = "NodeName=n1 State={state} Weight=1 X=y{reason}\n"
OWN_REASON = " Reason=forewarn:17 x [root@2026-11-22T03:00:00]"
RESERVATION = "ReservationName=forewarn-17 Nodes=n1 Flags=MAINT State=ACTIVE\n"


@dataclass(frozen=True, slots=True)
class Recording(SlurmCommand):
    """Command that answers for one node and records changes instead of making them."""

    node: str = NODE.format(state="IDLE", reason="")
    reservations: str = ""
    changes: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, *command: str) -> str:
        if "-j" in command:
            return f"{command[command.index('-j') + 1]}|PENDING|gpu|1|(null)|n1,n9|root|(null)\n"
        if command[0] == "squeue":
            return (
                "12|n1\n12_3|n1\n14+1|n1\n" if self.node.startswith("NodeName=n1 State=A") else ""
            )
        config = "RebootProgram = /sbin/x\nResumeTimeout = 1200 sec"
        return {"node": self.node, "reservation": self.reservations, "config": config}[command[2]]

    def change(self, *command: str) -> str:
        self.changes.append(command)
        return ""


def allowed(command: tuple[str, ...]) -> bool:
    """Tell whether a rule matches as in sudo: all arguments as one text."""
    rules = re.findall(r"/usr/bin/scontrol (\^.*?\$)(?:, \\)?$", RULES.read_text(), re.MULTILINE)
    assert len(rules) == 10
    return command[0] == "scontrol" and any(re.search(r, " ".join(command[1:])) for r in rules)


def driver_changes() -> list[tuple[str, ...]]:
    """Return one example of every change that the driver makes."""
    changes: list[tuple[str, ...]] = []
    free = Recording(changes=changes)
    drained = replace(free, node=NODE.format(state="IDLE+DRAIN", reason=OWN_REASON))
    busy = replace(free, node=NODE.format(state="ALLOCATED+DRAIN", reason=OWN_REASON))
    raised = replace(
        free, node=NODE.replace("Weight=1", "Weight=8388615").format(state="IDLE", reason="")
    )
    SlurmDriver(command=free).apply(
        DRAIN, why='state=down "$(reboot)" weight=1\nat risk: 0.41 -M x'
    )
    SlurmDriver(command=free).apply(DRAIN, why="")
    SlurmDriver(command=free).apply(replace(DRAIN, step=Step.AVOID), why="")
    SlurmDriver(command=raised).undo(replace(DRAIN, step=Step.AVOID))
    SlurmDriver(command=drained).undo(DRAIN)
    SlurmDriver(command=drained, check_users="root,check_1").reserve(DRAIN)
    SlurmDriver(command=drained).carry_out(DRAIN, Step.RESTART)
    down = NODE.format(state="DOWN+DRAIN", reason=OWN_REASON)
    SlurmDriver(command=replace(free, node=down, reservations=RESERVATION)).undo(DRAIN)
    SlurmDriver(command=busy).evict(DRAIN, ("12", "12_3", "14+1"))
    SlurmDriver(command=free).notify(("12", "12_3"), "-M other state=down")
    for job in ("12", "12_3"):
        with pytest.raises(DriverError, match="expected 'n9'"):  # this command changes nothing
            SlurmDriver(command=free).include(job, "n1")
    return changes


def test_rules_permit_all_driver_changes() -> None:
    changes = driver_changes()
    assert [change for change in changes if not allowed(change)] == []
    verbs = {" ".join(re.sub("=.*", "", word) for word in change[1:3]) for change in changes}
    assert {"update nodename", "create reservation", "delete reservationname"} < verbs
    assert len(changes) == 19


@pytest.mark.parametrize(
    "arguments",
    [
        "update nodename=n1 state=drain reason=forewarn:17 state=down",
        "update nodename=n1 state=drain reason=forewarn:17 x weight=3",
        "update nodename=n1 state=drain reason=mine",
        "update nodename=n1 state=down reason=forewarn:17",
        "update nodename=n1 state=resume",
        "update nodename=n1 state=undrain state=resume",
        "update nodename=n[1-9] state=undrain",
        "update nodename=n1,n2 state=undrain",
        "update jobid=12 priority=1",
        "update jobid=12 excnodelist=n1 priority=1",
        "update jobid=12,13 excnodelist=n1",
        "requeue 12,13",
        "requeue 12 13",
        "notify 12 -M other",
        "create reservation reservationname=forewarn-1 starttime=now duration=1 nodes=n1 users=a",
        "delete reservationname=firmware",
        "delete reservationname=forewarn-1 nodename=n1",
        "reboot n1",
        "reboot ASAP nextstate=RESUME reason=forewarn:17 n1,n2",
        "reboot ASAP nextstate=RESUME reason=forewarn:17 n1 n2",
        "reboot ASAP nextstate=DOWN reason=forewarn:17 n1",
        "reboot ASAP nextstate=RESUME reason=mine n1",
        "reconfigure",
        "",
    ],
)
def test_rules_permit_nothing_else(arguments: str) -> None:
    assert not allowed(("scontrol", *arguments.split()))


def test_rules_are_valid_sudoers(
    require_program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/sbin", prepend=":")
    visudo = require_program("visudo", "sudo")
    done = subprocess.run(
        [visudo, "-c", "-f", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
