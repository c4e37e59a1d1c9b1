from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.telemetry.proc import HostReading
from forewarn.features.telemetry.reading import GpuReading
from forewarn.pipelines.agent import Agent
from forewarn.pipelines.cli import main
from forewarn.pipelines.gpu_sources import Answer, HangError, NoSourceError
from forewarn.pipelines.policy import AgentPolicy, Collection
from forewarn.pipelines.spool import Spool

START = 1_740_787_200 * 10**9  # 2025-03-01
SECOND = 10**9
MINUTE = 60 * SECOND


@dataclass
class FakeClock:
    time: int = START

    def now(self) -> int:
        return self.time

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.time += round(seconds * SECOND)
        return until.is_set()


@dataclass
class FakeSource:
    """What the GPUs say next: serials, or what is raised."""

    serials: list[str] = field(default_factory=lambda: ["S0", "S1"])
    lost: tuple[str, ...] = ()
    trouble: Exception | None = None
    taken: list[float] = field(default_factory=list)

    def read(self, timeout: float) -> Answer:
        self.taken.append(timeout)
        if self.trouble is not None:
            raise self.trouble
        return Answer([gpu(serial) for serial in self.serials], self.lost)


def gpu(serial: str) -> GpuReading:
    return GpuReading(
        numbers={"temperature_gpu": 40.0},
        serial=serial,
        uuid=f"GPU-{serial}",
        pci=f"0000:1{serial[-1]}:00",
        slot=int(serial[-1]),
    )


@dataclass
class Host:
    """An agent with its folder, clock, GPUs and kernel log."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    source: FakeSource = field(default_factory=FakeSource)
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log.touch()
        self.agent = self.start()

    @property
    def log(self) -> Path:
        return self.folder / "kern.log"

    def start(self) -> Agent:
        policy = AgentPolicy(
            collector="http://127.0.0.1:9",
            machine_id="node-1",
            state=self.folder / "state",
            kernel_log=self.log,
        )
        self.agent = Agent(
            policy,
            Collection(),
            self.source,
            Spool(policy.state / "spool", 1 << 20),
            self.clock,
            self.said.append,
            lambda: HostReading(boot_time=START - MINUTE, load=(1.5, 1.0, 1.0)),
        )
        return self.agent

    def restart(self) -> None:
        self.agent.close()
        self.start()

    def write(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(f"2025-03-01T00:00:00.000001+00:00 node-1 kernel: {text}\n")

    def spooled(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what waits, in the order to send it: the kind of batch and the batch."""
        return [
            (path.parent.name[2:], json.loads(path.read_text()))
            for path in self.agent.spool.waiting()
        ]

    def events(self) -> list[tuple[str, str, Any]]:
        """Return kind of batch, kind of event, and code or serial of all events."""
        return [
            (batch, event["kind"], event.get("code", event.get("gpu_serial")))
            for batch, content in self.spooled()
            for event in content.get("events", [])
        ]


@pytest.fixture
def host(tmp_path: Path) -> Any:
    host = Host(tmp_path)
    yield host
    host.agent.close()


def xid(gpu: int, code: int) -> str:
    return f"NVRM: Xid (PCI:0000:1{gpu}:00): {code}, pid=7, name=python, text"


def test_a_gpu_dead_when_the_driver_loads_is_reported_at_its_address(host: Host) -> None:
    host.write("NVRM: The NVIDIA GPU 0000:b3:00.0")
    host.write("NVRM: (PCI ID: 10de:2330) installed in this system has")
    assert host.agent.follow() == 0
    host.write("NVRM: fallen off the bus and is not responding to commands.")
    assert host.agent.follow() == 1
    ((kind, batch),) = host.spooled()
    assert (kind, batch["events"][0]["kind"]) == ("faults", "lost")
    assert batch["events"][0]["pci"] == "0000:b3:00"


def test_a_reading_is_spooled_with_its_host(host: Host) -> None:
    host.agent.follow()
    rows = host.agent.collect(START)
    ((batch, content),) = host.spooled()
    assert (batch, content["readings"]) == ("batches", rows)
    assert rows[1] == {
        "timestamp": START,
        "machine_id": "node-1",
        "gpu_serial": "S1",
        "gpu_uuid": "GPU-S1",
        "pci": "0000:11:00",
        "slot": 1,
        "temperature_gpu": 40.0,
        "boot_time": START - MINUTE,
        "host_load": 1.5,
        "log_read": True,
    }
    assert host.source.taken == [30.0]


def test_a_reading_that_begins_a_little_late_is_the_scheduled_one(host: Host) -> None:
    for late, stamped in ((100, START), (200, START + 200 * SECOND)):
        host.clock.time = START + late * SECOND
        assert host.agent.collect(START)[0]["timestamp"] == stamped


def test_a_fatal_xid_goes_ahead_of_everything_with_what_was_before(host: Host) -> None:
    host.agent.collect(START)
    host.write("eth0: up")
    host.write(xid(1, 13))
    host.write(xid(1, 79))
    assert host.agent.follow() == 2
    assert host.events() == [("faults", "xid", 79), ("batches", "xid", 13)]
    (event,) = host.spooled()[0][1]["events"]
    assert (event["gpu_serial"], event["pid"], event["process"]) == ("S1", 7, "python")
    context = json.loads(event["context"])
    assert [row["gpu_serial"] for row in context["readings"]] == ["S1"]
    assert context["log"] == ["eth0: up", xid(1, 13), xid(1, 79)]
    assert any("xid 79" in line for line in host.said)


def test_the_policy_says_which_xids_are_reported_at_once(host: Host) -> None:
    host.agent.collection = Collection(report_xids=(13,))
    host.write(xid(0, 13))
    host.write(xid(0, 79))
    host.agent.follow()
    assert host.events() == [("faults", "xid", 13), ("batches", "xid", 79)]


def test_a_restart_neither_loses_nor_repeats_a_line(host: Host) -> None:
    host.write(xid(0, 13))
    host.agent.follow()
    host.restart()
    host.write(xid(0, 31))
    host.agent.follow()
    assert [code for _, _, code in host.events()] == [13, 31]


def test_a_kill_between_spool_and_position_repeats_the_same_event(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write(xid(0, 13))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Agent, "_store", killed)
        with pytest.raises(KeyboardInterrupt):
            host.agent.follow()
    host.restart()
    host.agent.follow()
    ids = [event["id"] for _, content in host.spooled() for event in content["events"]]
    assert (len(ids), len(set(ids))) == (2, 1)


def test_a_gpu_that_is_gone_is_lost_once_and_back_once(host: Host) -> None:
    host.agent.collect(START)
    for serials in (["S0"], ["S0"], ["S0", "S1"], ["S0", "S1"]):
        host.source.serials = serials
        host.agent.collect()
    assert host.events() == [("faults", "lost", "S1"), ("batches", "back", "S1")]


def test_a_gpu_that_went_while_the_agent_was_away_is_lost(host: Host) -> None:
    host.agent.collect(START)
    host.restart()
    host.source.serials = ["S0"]
    host.agent.learn()
    assert host.events() == [("faults", "lost", "S1")]
    host.restart()
    host.agent.learn()
    assert len(host.events()) == 1


def test_a_gpu_whose_place_another_one_took_was_replaced(host: Host) -> None:
    host.agent.collect(START)
    host.source.serials = ["S0", "T1"]
    host.agent.collect()
    assert host.events() == []


def test_a_gpu_that_the_driver_calls_lost(host: Host) -> None:
    host.agent.collect(START)
    host.source.serials, host.source.lost = ["S0"], ("0000:11:00", "0000:77:00")
    host.agent.collect()
    host.agent.collect()
    assert sorted(host.events(), key=str) == [
        ("faults", "lost", "S1"),
        ("faults", "lost", None),
    ]


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [(HangError("nvidia-smi gave no answer in 30 s"), "hang"), (NoSourceError("none"), "blind")],
)
def test_gpus_that_do_not_answer_are_a_finding_once(
    host: Host, trouble: Exception, kind: str
) -> None:
    host.source.trouble = trouble
    assert host.agent.collect() == host.agent.collect() == []
    assert host.events() == [("faults", kind, None)]
    host.source.trouble = None
    host.agent.collect()
    host.source.trouble = trouble
    host.agent.collect()
    assert len(host.events()) == 2


def test_a_log_that_cannot_be_read_is_blind_and_no_health(host: Host) -> None:
    host.log.unlink()
    host.agent.follow()
    host.agent.follow()
    assert host.events() == [("faults", "blind", None)]
    assert host.agent.collect()[0]["log_read"] is False
    host.log.touch()
    host.agent.follow()
    assert host.agent.collect()[0]["log_read"] is True


def test_a_storm_of_lines_is_sent_in_pieces(host: Host) -> None:
    with host.log.open("a") as file:
        file.writelines(f"2025-03-01T00:00:00+00:00 n kernel: {xid(0, 13)}\n" for _ in range(2500))
    host.agent.follow()
    assert [len(content["events"]) for _, content in host.spooled()] == [1000, 1000, 500]


def run_for(host: Host, minutes: float, *jumps: tuple[float, float]) -> list[float]:
    """Let the schedule run and return the minutes that were read, on the clock of the host.

    Jumps are minutes of running after which the clock is set by so many minutes.
    """
    read: list[float] = []
    ran, left = 0.0, list(jumps)

    class Clock(FakeClock):
        def wait(self, seconds: float, until: threading.Event) -> bool:
            nonlocal ran
            ran += seconds / 60
            self.time += round(seconds * SECOND)
            while left and ran >= left[0][0]:
                self.time += round(left.pop(0)[1] * MINUTE)
            if ran >= minutes:
                host.agent.stop.set()
            return until.is_set()

    clock = Clock(host.clock.time)
    host.clock = host.agent.clock = clock
    host.agent.stop.clear()
    host.agent._collect_on_schedule()
    for _, content in host.spooled():
        read += [(row["timestamp"] - START) / MINUTE for row in content.get("readings", [])[:1]]
    return read


def test_readings_come_on_the_full_interval(host: Host) -> None:
    host.clock.time = START + 3 * MINUTE
    assert run_for(host, 45) == [10, 20, 30, 40]


def test_a_clock_that_falls_back_reads_no_moment_twice(host: Host) -> None:
    assert run_for(host, 75, (35, -20)) == [0, 10, 20, 30, 40, 50]


def test_a_clock_that_jumps_ahead_goes_on_from_there(host: Host) -> None:
    # The moment it was waiting for is long past: that reading is one of now.
    assert run_for(host, 40, (15, 30)) == [0, 10, 45, 50, 60]


def test_a_clock_that_was_years_ahead_does_not_silence_the_agent(host: Host) -> None:
    host.clock.time = START + 10_000 * MINUTE
    read = run_for(host, 45, (15, -10_000))
    assert read[:2] == [10_000, 10_010]
    assert read[2:] == [20, 30, 40]


def test_a_reading_that_a_kill_prevented_is_made_up_for(host: Host) -> None:
    run_for(host, 12)
    host.restart()
    host.clock.time = START + 21 * MINUTE
    assert run_for(host, 15) == [0, 10, 20, 30]
    host.restart()
    host.clock.time = START + 36 * MINUTE
    assert run_for(host, 10) == [0, 10, 20, 30, 40]


# --- the spool -----------------------------------------------------------------------------------


def test_the_spool_keeps_its_order_over_restarts(tmp_path: Path) -> None:
    for _ in range(2):
        spool = Spool(tmp_path, 1 << 20)
        spool.put({"a": 1})
        spool.put({"b": 1}, fault=True)
    assert [p.parent.name[2:] + p.stem[-2:] for p in Spool(tmp_path, 1).waiting()] == [
        "faults02",
        "faults04",
        "batches01",
        "batches03",
    ]


def test_a_full_spool_gives_way_from_the_oldest_and_keeps_faults(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 350)
    spool.put({"x": "f" * 500}, fault=True)
    for number in range(5):
        spool.put({"x": str(number) * 100})
    assert [path.stem[-1] for path in spool.waiting()] == ["1", "4", "5", "6"]
    assert spool.dropped == 2


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a policy without a collector, on a host with an nvidia-smi of its own."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text("#!/bin/sh\necho 'index, serial, temperature.gpu'; echo '0, S0, 40'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("FOREWARN_TOKEN", raising=False)
    path = tmp_path / "agent.toml"
    log = tmp_path / "kern.log"
    log.touch()
    path.write_text(f'machine_id = "node-1"\nkernel_log = "{log}"\nstate = "{tmp_path}/state"\n')
    return path


def test_once_prints_the_record_and_leaves_nothing(
    policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agent", "--policy", str(policy), "--once"]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["gpu_serial"], row["temperature_gpu"], row["log_read"]) == ("S0", 40.0, True)
    assert row["boot_time"] > 0
    assert not (policy.parent / "state").exists()


def test_once_without_its_collector_keeps_what_it_read(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.write_text('collector = "http://127.0.0.1:9"\n' + policy.read_text())
    monkeypatch.setenv("FOREWARN_TOKEN", "secret")
    assert main(["agent", "--policy", str(policy), "--once"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert "not sent, kept" in said.err
    assert "secret" not in said.err
    assert len(list((policy.parent / "state" / "spool").glob("*/*.json"))) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('colector = "x"', "unknown key `colector`"),
        ('collector = "collector:8470"', "expected an address such as"),
        ('machine_id = "../x"', "expected a name of letters"),
        ('[collection]\ninterval = "soon"', "expected a duration"),
        ('[collection]\nsources = ["disk"]', "'gpu', 'kernel_log' or 'proc'"),
        ("x = [", "is no TOML file"),
        ('collector = "http://127.0.0.1:9"', "FOREWARN_TOKEN is not set"),
        ('gpu = "nvml"', "no GPU was read"),
    ],
)
def test_what_is_wrong_is_the_last_line(
    policy: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.write_text(text)
    assert main(["agent", "--policy", str(policy), "--once"]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_daemon_needs_a_collector(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--policy", str(policy)]) == 2
    assert "the policy has no `collector`" in capsys.readouterr().err


def test_an_agent_imports_neither_numpy_nor_arrow() -> None:
    import subprocess
    import sys

    code = (
        "import sys, forewarn.pipelines.agent_service, forewarn.pipelines.cli; "
        "print(sorted({'numpy', 'pandas', 'pyarrow', 'keras', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
