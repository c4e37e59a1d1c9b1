"""Fixtures: a real Slurm with sixteen nodes on loopback, run by the user of the tests."""

from __future__ import annotations

import getpass
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.incidents.schedulers.slurm.slurm_driver import SlurmDriver
from forewarn.response.state.action import Action
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import DrainMode, Step

PROGRAMS = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "scontrol": "slurm-client",
}
NODES = tuple(f"node-{number:05d}" for number in range(16))
TIMEOUT_SECONDS = 300.0
CONF = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
MessageTimeout=100
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000
TopologyPlugin=topology/tree
MpiDefault=none
SwitchType=switch/none
ReturnToService=1
SlurmdParameters=config_overrides
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/%n
StateSaveLocation={folder}/state
GresTypes=gpu
RebootProgram={folder}/reboot
ResumeTimeout=1200
{nodes}
PartitionName=gpu Nodes=ALL Default=YES
PartitionName=large Nodes=node-[00000-00003]
"""


class Cluster:
    """Slurm's daemons, and commands that a person would type."""

    def __init__(self, folder: Path, free_port: Callable[[], int]) -> None:
        self.folder = folder
        self.free_port = free_port
        self.user = getpass.getuser()
        self.conf = folder / "slurm.conf"
        self._mark = secrets.token_hex(8)
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def version(self) -> tuple[int, int]:
        """Return year and month of Slurm's version; works without a configuration."""
        year, month = self.call("slurmctld", "-V").split()[-1].split(".")[:2]
        return int(year), int(month)

    def start(self) -> None:
        for name in (*NODES, "state"):
            (self.folder / name).mkdir()
        self._write_files()
        files = {name: f"--{name}-file={self.folder}/munge.{name}" for name in ("pid", "log")}
        self._spawn(
            "munged",
            # --force: the test folder is private, but munged requires one that is open to all.
            *("--foreground", "--force", f"--key-file={self.folder}/key"),
            *(f"--socket={self.folder}/munge.sock", f"--seed-file={self.folder}/seed"),
            *files.values(),
        )
        self.until(lambda: (self.folder / "munge.sock").exists(), "munged")
        self.start_controller("-i")
        for name in NODES:
            self._spawn(name, "-D", "-f", str(self.conf), "-N", name, program="slurmd")
        self.until(lambda: self.states() == {"idle"}, "nodes")

    def _write_files(self) -> None:
        key = self.folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        controller, *ports = [self.free_port() for _ in range(len(NODES) + 1)]
        lines = [
            f"NodeName={name} NodeAddr=127.0.0.1 NodeHostname=localhost Port={port} CPUs=8 "
            f"Gres=gpu:8 RealMemory=1000 Weight=7 Feature={node_features(number)}"
            for number, (name, port) in enumerate(zip(NODES, ports, strict=True))
        ]
        values = {"folder": self.folder, "user": self.user, "controller": controller}
        self.conf.write_text(CONF.format(nodes="\n".join(lines), **values))
        reboot = self.folder / "reboot"
        reboot.write_text(f"#!/bin/sh\necho restarted >> {self.folder}/restarts\n")
        reboot.chmod(0o755)
        for number in range(8):
            (self.folder / f"gpu{number}").touch()
        gres = f"NodeName=node-[00000-00015] Name=gpu File={self.folder}/gpu[0-7]\n"
        (self.folder / "gres.conf").write_text(gres)
        # From 23.11 on slurmd requires its own control groups unless disabled.
        if self.version >= (23, 11):
            (self.folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        (self.folder / "topology.conf").write_text(
            "SwitchName=leaf1 Nodes=node-[00000-00007]\n"
            "SwitchName=leaf2 Nodes=node-[00008-00015]\n"
            "SwitchName=spine Switches=leaf[1-2]\n"
        )

    def _spawn(self, name: str, *arguments: str, program: str = "") -> None:
        environment = os.environ | {"SLURM_CONF": str(self.conf), "FOREWARN_TEST": self._mark}
        with (self.folder / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                [program or name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
            )

    def start_controller(self, *options: str) -> None:
        self._spawn("slurmctld", "-D", *options, "-f", str(self.conf))
        self.until(lambda: "UP" in self.call("scontrol", "ping"), "slurmctld")

    def send(self, daemon: str, number: signal.Signals) -> None:
        self._daemons[daemon].send_signal(number)

    def kill_controller(self) -> None:
        """Kill the controller; what it has not saved yet is lost."""
        self.stop_controller(signal.SIGKILL)

    def stop_controller(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the controller, which saves its state first."""
        self.send("slurmctld", number)
        self._daemons.pop("slurmctld").wait(TIMEOUT_SECONDS)

    def restart_node(self, name: str) -> None:
        """Restart a node's daemon as after a boot."""
        self.send(name, signal.SIGKILL)
        self._daemons.pop(name).wait(TIMEOUT_SECONDS)
        self._spawn(name, "-D", "-b", "-f", str(self.conf), "-N", name, program="slurmd")

    def stop(self) -> None:
        """Kill all daemons and the job steps that they leave behind."""
        for daemon in self._daemons.values():
            daemon.kill()
        for daemon in self._daemons.values():
            daemon.wait(TIMEOUT_SECONDS)
        mark = f"FOREWARN_TEST={self._mark}".encode()
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)

    def call(self, *command: str) -> str:
        """Return the output of a Slurm program, whether it succeeds or not."""
        environment = os.environ | {"SLURM_CONF": str(self.conf), "FOREWARN_TEST": self._mark}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return done.stdout + done.stderr

    def update(self, node: str, *changes: str) -> None:
        """Update a node as a person would; Slurm has to accept it."""
        assert self.call("scontrol", "update", f"nodename={node}", *changes) == ""

    def states(self) -> set[str]:
        return set(self.call("sinfo", "-h", "-N", "-o", "%T").split())

    def line(self, node: str) -> str:
        return self.call("scontrol", "show", "node", "-o", node)

    def submit(self, *options: str, output: Path = Path("/dev/null")) -> str:
        """Start a job and wait until it runs; return its number."""
        script = "echo started; exec sleep 999"
        command = ["sbatch", "--parsable", "-o", str(output), *options, "--wrap", script]
        job = self.call(*command).strip()
        assert job.isdigit(), job
        self.until(lambda: " R" in self.call("squeue", "-h", "-j", job, "-o", " %t"), job)
        return job

    def jobs(self) -> dict[str, str]:
        """Return the state of each job and task."""
        lines = self.call("squeue", "-h", "-r", "-o", "%i %t").splitlines()
        return dict(line.split() for line in lines)

    def has_saved(self, text: str) -> bool:
        """Tell whether the controller has saved a text in its node state."""
        file = self.folder / "state" / "node_state"
        return file.exists() and text.encode() in file.read_bytes()

    def wait_until_saved(self, text: str) -> None:
        """Wait until the controller has saved a text in its node state."""
        self.until(lambda: self.has_saved(text), f"{text} on disk")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while not condition():
            ended = [name for name, daemon in self._daemons.items() if daemon.poll() is not None]
            assert not ended, [(self.folder / f"{name}.out").read_text() for name in ended]
            assert time.monotonic() < end, (
                f"{what}: not in {TIMEOUT_SECONDS:g} s\n"
                f"{self.call('squeue', '-o', '%i %P %t %R')}{self.call('sinfo', '-N', '-l')}"
            )
            time.sleep(0.05)

    @property
    def driver(self) -> SlurmDriver:
        command = SlurmCommand(str(self.conf), timeout=TIMEOUT_SECONDS)
        return SlurmDriver({"big": "large", "rest": "gpu"}, command, self.user)

    def machine(self, name: str) -> Machine:
        return next(machine for machine in self.driver.read().machines if machine.name == name)


def node_features(number: int) -> str:
    return f"rack=r{number // 4}" + (",forewarn=off" if number == 15 else "")


@pytest.fixture(scope="session")
def cluster(
    require_program: Callable[[str, str], Path],
    free_port: Callable[[], int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin:/sbin")  # daemons live there
        for command, package in PROGRAMS.items():
            require_program(command, package)
        cluster = Cluster(tmp_path_factory.mktemp("slurm"), free_port)
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


@pytest.fixture
def slurm(cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster, and reset it after a test."""
    yield cluster
    cluster.call("scancel", "-u", cluster.user)
    cluster.until(lambda: cluster.call("squeue", "-h") == "", "jobs")
    for node in NODES:
        state = cluster.line(node)
        if "DOWN" in state or "DRAIN" in state:
            cluster.call("scontrol", "update", f"nodename={node}", "state=resume")
    cluster.until(lambda: cluster.states() == {"idle"}, "nodes")


@pytest.fixture
def drain() -> Callable[..., Action]:
    """Return `drain(machine, number=17, step=Step.DRAIN)`, which creates an action."""

    def action(machine: str, number: int = 17, step: Step = Step.DRAIN) -> Action:
        moment = Nanoseconds(0)
        names = (machine, "rest", None, None, "at_risk")
        return Action(number, 1, *names, step, DrainMode.FINISH, moment, moment, moment)

    return action
