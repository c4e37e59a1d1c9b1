from __future__ import annotations

import datetime as dt
import errno
import json
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from forewarn.features.telemetry.failure_evidence import BOOTS, TICKETS, FailureRules
from forewarn.features.telemetry.failure_spans import build_failures
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.features.telemetry.parsers.proc_files import HostReading
from forewarn.features.telemetry.telemetry_tables import EVENTS, build_table
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.pipelines.agent.agent import Agent
from forewarn.pipelines.agent.port_counter_events import PortCounterEvents
from forewarn.pipelines.agent.sender import Sender
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll, HangError, NoSourceError
from forewarn.pipelines.agent.sources.nvidia_smi import NvidiaSmi
from forewarn.pipelines.agent.spool import Spool
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.agent_policy import AgentPolicy, CollectionPolicy

START = 1_740_787_200 * SECOND  # 2025-03-01


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
    """A source with configurable serials, losses and errors."""

    serials: list[str] = field(default_factory=lambda: ["S0", "S1"])
    lost: tuple[str, ...] = ()
    trouble: Exception | None = None
    dumb: int = 0
    taken: list[float] = field(default_factory=list)
    actions: dict[str, str] = field(default_factory=dict)

    def read(self, timeout: float) -> GpuPoll:
        self.taken.append(timeout)
        if self.trouble is not None:
            raise self.trouble
        nameless = [GpuReading(slot=7 + number) for number in range(self.dumb)]
        named = [replace(gpu(serial), action=self.actions.get(serial)) for serial in self.serials]
        return GpuPoll(named + nameless, self.lost)


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
    source: Any = field(default_factory=FakeSource)
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
            CollectionPolicy(),
            self.source,
            Spool(policy.state / "spool", 1 << 20),
            self.clock,
            self.said.append,
            lambda: HostReading(boot_time=START - MINUTE, load=(1.5, 1.0, 1.0)),
            PortCounterEvents(self.folder / "sys"),
        )
        return self.agent

    def restart(self) -> None:
        self.agent.close()
        self.start()

    def write(self, text: str) -> None:
        with self.log.open("a") as file:
            file.write(f"2025-03-01T00:00:00.000001+00:00 node-1 kernel: {text}\n")

    def spooled(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the waiting batches in sending order, with their kind."""
        return [
            (path.parent.name[2:], json.loads(path.read_text()))
            for path in self.agent.spool.waiting()
        ]

    def events(self) -> list[tuple[str, str, Any]]:
        """Return batch kind, event kind, and code or serial of all events."""
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


def test_gpu_lost_at_driver_load_has_address(host: Host) -> None:
    host.write("NVRM: The NVIDIA GPU 0000:b3:00.0")
    host.write("NVRM: (PCI ID: 10de:2330) installed in this system has")
    assert host.agent.follow() == 0
    host.write("NVRM: fallen off the bus and is not responding to commands.")
    assert host.agent.follow() == 1
    ((kind, batch),) = host.spooled()
    assert (kind, batch["events"][0]["kind"]) == ("faults", "lost")
    assert batch["events"][0]["pci"] == "0000:b3:00"


def test_rising_port_counters_are_events(host: Host) -> None:
    port = host.folder / "sys" / "infiniband" / "mlx5_3" / "ports" / "1" / "counters"
    port.mkdir(parents=True)
    (port / "symbol_error").write_text("N/A (no PMA)\n")
    for value in (7, 9, 9, 2):
        (port / "link_downed").write_text(f"{value}\n")
        host.clock.time += MINUTE
        host.agent.collect()
    batches = (batch for _, batch in host.spooled())
    (event,) = [e for batch in batches for e in batch.get("events", ()) if e["kind"] == "nic_error"]
    assert (event["check"], event["severity"], event["count"]) == (
        *("link_downed mlx5_3/1", "warning", 2),
    )
    assert event["timestamp"] == START + 2 * MINUTE


def test_readings_have_rates_of_ports(host: Host) -> None:
    port = host.folder / "sys" / "infiniband" / "mlx5_3" / "ports" / "1"
    virtual = host.folder / "sys" / "infiniband" / "mlx5_9" / "ports" / "1"
    for path in (port, virtual):
        (path / "counters").mkdir(parents=True)
        (path / "hw_counters").mkdir()
    (virtual.parent.parent / "device" / "physfn").mkdir(parents=True)
    (host.folder / "sys" / "net" / "ens9" / "device").mkdir(parents=True)
    pauses = iter([100, 700, 5])
    host.agent.ports.statistics = lambda _: [("tx_prio3_pause", next(pauses)), ("rx_bytes", 8)]
    rows = []
    for words in (10**9, 4 * 10**9, 5 * 10**9):
        for path in (port, virtual):
            (path / "counters" / "port_xmit_data").write_text(f"{words}\n")
            (path / "hw_counters" / "np_cnp_sent").write_text(f"{words // 10**9 * 60}\n")
        host.clock.time += MINUTE
        rows.append(host.agent.collect()[0])
    names = ("rdma_throughput", "cnp_sent_rate", "pfc_tx_packet_rate")
    assert [[row.get(name) for name in names] for row in rows] == [
        [None, None, None],
        [pytest.approx(1.6), 3.0, 10.0],
        [pytest.approx(32 / 60), 1.0, None],  # the interface was reset
    ]


def test_hardware_errors_are_no_faults(host: Host) -> None:
    line = "pcieport 0000:10:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer"
    for _ in range(40):
        host.write(line)
    host.write("mlx5_core 0000:9a:00.0 ens9: Link down")
    assert host.agent.follow() == 2
    spooled = host.spooled()
    events = [event for _, batch in spooled for event in batch["events"]]
    assert [(e["kind"], e["severity"], e["count"]) for e in events] == [
        ("pcie_error", "notice", 40),
        ("nic_error", "warning", 1),
    ]
    assert {kind for kind, _ in spooled}.isdisjoint({"faults"})


def test_quoted_log_lines_are_no_fault(host: Host) -> None:
    quoted = xid(1, 79)
    with host.log.open("a") as file:
        file.write(f'2025-03-01T00:00:00+00:00 node-1 gpud[7]: [XID found] "{quoted}"\n{quoted}\n')
        file.write(f'Mar  1 00:00:00 node-1 sudo:    root : COMMAND=/usr/bin/grep "{quoted}"\n')
    assert host.agent.follow() == 0
    assert host.spooled() == []
    host.write(quoted)
    assert host.agent.follow() == 1


def test_unknown_line_format_is_logged(host: Host) -> None:
    with host.log.open("a") as file:
        file.write(f"2025.03.01 00:00 node-1 kernel {xid(1, 79)}\n")
    assert host.agent.follow() == 0
    assert any("unknown format" in line for line in host.said)


def test_requested_recovery_is_reported_once(host: Host) -> None:
    host.source.actions = {"S1": "reset"}
    host.agent.collect()
    host.agent.collect()
    host.source.actions = {"S1": "none"}
    host.agent.collect()
    host.source.actions = {"S1": "reboot"}
    host.agent.collect()
    asked = [
        (batch, event["gpu_serial"], event["action"])
        for batch, content in host.spooled()
        for event in content.get("events", [])
    ]
    assert asked == [("faults", "S1", "reset"), ("faults", "S1", "reboot")]


def test_readiness_follows_hardware(host: Host) -> None:
    def faults() -> list[tuple[str, str]]:
        content = json.loads((host.folder / "state" / "ready.json").read_text())
        assert content["machine"] == "node-1"
        return sorted((row["kind"], row["gpu"]) for row in content["faults"])

    host.agent.collect()
    assert faults() == []
    host.write(xid(1, 79))
    host.agent.follow()
    assert faults() == [("xid", "GPU-S1")]
    host.source.serials = ["S0"]
    for _ in range(2):
        host.agent.collect()
    assert faults() == [("lost", "GPU-S1"), ("xid", "GPU-S1")]
    host.source.trouble = HangError("no answer")
    host.agent.collect()  # says nothing about the GPUs
    assert faults() == [("lost", "GPU-S1"), ("xid", "GPU-S1")]
    host.source = FakeSource(actions={"S0": "reset"})
    host.agent.source = host.source
    host.agent.collect()
    assert faults() == [("needs_reset", "GPU-S0"), ("xid", "GPU-S1")]
    host.clock.time += 4 * 10 * MINUTE
    host.source.actions = {}
    host.agent.collect()
    assert faults() == []


@pytest.mark.parametrize(
    ("line", "is_fault"),
    [
        ("NVRM: Xid (PCI:0000:11:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x1)", True),
        ("NVRM: Xid (PCI:0000:11:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x1)", False),
        ("NVRM: Xid (PCI:0000:11:00): 154, GPU recovery action changed from 0x0 (None) to "
         "0x1 (GPU Reset Required)", True),
        ("NVRM: Xid (PCI:0000:11:00): 154, GPU recovery action changed from 0x1 (GPU Reset "
         "Required) to 0x0 (None)", False),
        ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 24007, Fatal, Link 46", True),
        ("nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44", False),
        ("NVRM: GPU 0000:11:00.0: RmInitAdapter failed! (0x62:0x40:2142)", True),
    ],
)  # fmt: skip
def test_driver_severity_decides_immediate_report(host: Host, line: str, is_fault: bool) -> None:
    host.write(line)
    host.agent.follow()
    ((kind, _),) = host.spooled()
    assert kind == ("faults" if is_fault else "batches")


def test_reading_is_spooled_with_host(host: Host) -> None:
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


def test_slightly_late_reading_keeps_schedule(host: Host) -> None:
    for late, stamped in ((100, START), (200, START + 200 * SECOND)):
        host.clock.time = START + late * SECOND
        assert host.agent.collect(START)[0]["timestamp"] == stamped


def test_fatal_xid_first_with_context(host: Host) -> None:
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


def test_policy_selects_reported_xids(host: Host) -> None:
    host.agent.collection = CollectionPolicy(report_xids=(13,))
    host.write(xid(0, 13))
    host.write(xid(0, 79))
    host.agent.follow()
    assert host.events() == [("faults", "xid", 13), ("batches", "xid", 79)]


def test_restart_neither_loses_nor_repeats_lines(host: Host) -> None:
    host.write(xid(0, 13))
    host.agent.follow()
    host.restart()
    host.write(xid(0, 31))
    host.agent.follow()
    assert [code for _, _, code in host.events()] == [13, 31]


def test_kill_before_position_repeats_same_event(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.write(xid(0, 13))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Agent, "_store_position", killed)
        with pytest.raises(KeyboardInterrupt):
            host.agent.follow()
    host.restart()
    host.agent.follow()
    ids = [event["id"] for _, content in host.spooled() for event in content["events"]]
    assert (len(ids), len(set(ids))) == (2, 1)


def test_lost_and_returned_gpu_reported_once(host: Host) -> None:
    host.agent.collect(START)
    for serials in (["S0"], ["S0"], ["S0"], ["S0", "S1"], ["S0", "S1"]):
        host.source.serials = serials
        host.agent.collect()
    assert host.events() == [("faults", "lost", "S1"), ("batches", "back", "S1")]


def test_loss_time_is_first_missing_poll(host: Host) -> None:
    host.agent.collect(START)
    host.source.serials = ["S0"]
    for tick in (1, 2, 3):
        host.clock.time = START + tick * 10 * MINUTE
        host.agent.collect()
    (event,) = host.spooled()[0][1]["events"]
    assert (event["kind"], event["timestamp"]) == ("lost", START + 10 * MINUTE)


def test_gpu_lost_while_agent_was_down(host: Host) -> None:
    host.agent.collect(START)
    host.restart()
    host.source.serials = ["S0"]
    host.agent.learn()
    assert host.events() == []
    host.agent.collect()
    assert [event for event in host.events() if event[1] == "lost"] == [("faults", "lost", "S1")]
    host.restart()
    host.agent.learn()
    host.agent.collect()
    assert len(host.events()) == 1


def test_replaced_gpu_is_not_lost(host: Host) -> None:
    host.agent.collect(START)
    host.source.serials = ["S0", "T1"]
    host.agent.collect()
    host.agent.collect()
    assert host.events() == []


def test_driver_reported_lost_gpu(host: Host) -> None:
    host.agent.collect(START)
    host.source.serials, host.source.lost = ["S0"], ("0000:11:00", "0000:77:00")
    host.agent.collect()
    host.agent.collect()
    assert sorted(host.events(), key=str) == [
        ("faults", "lost", "S1"),
        ("faults", "lost", None),
    ]


def test_single_missing_poll_is_not_loss(host: Host) -> None:
    for serials in (["S0", "S1"], ["S0"], ["S0", "S1"], ["S0"], [], ["S0"], ["S0", "S1"]):
        host.source.serials = serials
        host.agent.collect()
    # The empty poll separates the two polls without S1, so that they are not consecutive.
    assert host.events() == [("faults", "blind", None)]


def test_unidentified_gpu_hides_missing_one(host: Host) -> None:
    host.agent.collect()
    host.source.serials, host.source.dumb = ["S0"], 1
    for _ in range(3):
        host.agent.collect()
    assert host.events() == [("faults", "blind", None)]
    host.source.dumb = 0
    host.source.serials = ["S0", "S1"]
    for _ in range(3):
        host.agent.collect()
    assert host.events() == [("faults", "blind", None)]


TABLE = "index, serial, uuid, pci.bus_id\\n" + "".join(
    f"{slot}, S{slot}, GPU-{slot}, 00000000:1{slot}:00.0\\n" for slot in range(4)
)
LOST_3 = "Unable to determine the device handle for GPU0000:13:00.0: Unknown Error"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "blind"),
        ("exit 0", "blind"),
        ("exit 14", "blind"),
        ("kill -9 $$", "blind"),
        (f"printf '{TABLE}' | head -3; kill -15 $$", "blind"),
        (r"printf 'x\\000y,\\377\\n,,,'", "blind"),
        (f"printf '{TABLE}' | head -3; exit 1", "blind"),
        (f"printf '{TABLE}' | head -c 100", "blind"),
        (f"printf '{TABLE}' | sed 's/^3.*/3, [Unknown Error], [Unknown Error], [N\\/A]/'", "blind"),
        ("exec sleep 60", "hang"),
        ("exec /nowhere/nvidia-smi", "blind"),
    ],
)
def test_nvidia_smi_trouble_marks_no_failure(tmp_path: Path, script: str, kind: str) -> None:
    smi = tmp_path / "nvidia-smi"

    def program(text: str) -> None:
        smi.write_text(f"#!/bin/sh\n{text}\n")
        smi.chmod(0o755)

    program(f"printf '{TABLE}'")
    host = Host(tmp_path, source=NvidiaSmi(str(smi)))
    assert len(host.agent.collect()) == 4
    program(script)
    patience = "300ms" if kind == "hang" else "60s"
    host.agent.collection = CollectionPolicy.model_validate({"timeout": patience})
    for _ in range(3):
        host.agent.collect()
    host.agent.collection = CollectionPolicy()
    program(f"printf '{TABLE}'")
    assert len(host.agent.collect()) == 4
    assert host.events() == [("faults", kind, None)]
    host.agent.close()
    events = build_table([e for _, batch in host.spooled() for e in batch["events"]], EVENTS)
    serials = pa.array(["S1"] * len(events))  # not a failure even with a serial
    events = events.set_column(EVENTS.get_field_index("gpu_serial"), "gpu_serial", serials)
    none = build_failures(events, TICKETS.empty_table(), BOOTS.empty_table(), FailureRules())
    assert len(none) == 0


REPEATED = "message repeated 999999999 times: [ "


def test_endless_repetitions_are_bounded(host: Host) -> None:
    host.write(REPEATED * 50 + xid(1, 79) + "]" * 50)
    host.write(REPEATED + "NVRM: 999999999 callbacks suppressed]")
    host.write(xid(1, 48))
    assert host.agent.follow() == 2
    events = build_table([e for _, batch in host.spooled() for e in batch["events"]], EVENTS)
    assert dict(zip(events["kind"].to_pylist(), events["count"].to_pylist(), strict=True)) == {
        "xid": 1,
        "suppressed": 10**9,
    }


WITH_POWER = "".join(f"{line}, {{}}\\n" for line in TABLE.split("\\n")[:-1]).format(
    "power.draw [W]", "90.00 W", "91.00 W", "92.00 W", "[GPU is lost]"
)


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        (f"echo '{LOST_3}'; exit 15", ["lost", "blind"]),
        (f"printf '{TABLE}' | head -4; echo '{LOST_3}'; exit 15", ["lost"]),
        (f"printf '{WITH_POWER}'", ["lost"]),
    ],
)
def test_only_driver_reported_gpu_is_lost(tmp_path: Path, script: str, kinds: list[str]) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\nprintf '{TABLE}'\n")
    smi.chmod(0o755)
    host = Host(tmp_path, source=NvidiaSmi(str(smi)))
    host.agent.collect()
    smi.write_text(f"#!/bin/sh\n{script}\n")
    for _ in range(3):
        host.agent.collect()
    host.agent.close()
    assert host.events() == [("faults", kind, "S3" if kind == "lost" else None) for kind in kinds]


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (HangError("nvidia-smi did not respond within 30 s"), "hang"),
        (NoSourceError("none"), "blind"),
    ],
)
def test_unresponsive_gpus_are_reported_once(host: Host, trouble: Exception, kind: str) -> None:
    host.source.trouble = trouble
    assert host.agent.collect() == host.agent.collect() == []
    assert host.events() == [("faults", kind, None)]
    host.source.trouble = None
    host.agent.collect()
    host.source.trouble = trouble
    host.agent.collect()
    assert len(host.events()) == 2


def test_unreadable_log_is_blind(host: Host) -> None:
    host.log.unlink()
    host.agent.follow()
    host.agent.follow()
    assert host.events() == [("faults", "blind", None)]
    assert host.agent.collect()[0]["log_read"] is False
    host.log.touch()
    host.agent.follow()
    assert host.agent.collect()[0]["log_read"] is True


def test_many_lines_are_sent_in_chunks(host: Host) -> None:
    with host.log.open("a") as file:
        file.writelines(f"2025-03-01T00:00:00+00:00 n kernel: {xid(0, 13)}\n" for _ in range(2500))
    host.agent.follow()
    assert [len(content["events"]) for _, content in host.spooled()] == [1000, 1000, 500]


def run_for(host: Host, minutes: float, *jumps: tuple[float, float]) -> list[float]:
    """Run the schedule and return the reading times in minutes, on the clock of the host.

    Each jump is (minutes after the start, minutes by which the clock is set).
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
    host.agent.collect_on_schedule()
    for _, content in host.spooled():
        read += [(row["timestamp"] - START) / MINUTE for row in content.get("readings", [])[:1]]
    return read


def test_readings_at_full_intervals(host: Host) -> None:
    host.clock.time = START + 3 * MINUTE
    assert run_for(host, 45) == [10, 20, 30, 40]


def test_clock_set_back_repeats_no_reading(host: Host) -> None:
    assert run_for(host, 75, (35, -20)) == [0, 10, 20, 30, 40, 50]


def test_clock_jump_ahead_continues_from_there(host: Host) -> None:
    # The scheduled time is long past: the reading gets the current time.
    assert run_for(host, 40, (15, 30)) == [0, 10, 45, 50, 60]


def test_clock_years_ahead_recovers(host: Host) -> None:
    host.clock.time = START + 10_000 * MINUTE
    read = run_for(host, 45, (15, -10_000))
    assert read[:2] == [10_000, 10_010]
    assert read[2:] == [20, 30, 40]


def test_reading_missed_by_kill_is_made_up(host: Host) -> None:
    run_for(host, 12)
    host.restart()
    host.clock.time = START + 21 * MINUTE
    assert run_for(host, 15) == [0, 10, 20, 30]
    host.restart()
    host.clock.time = START + 36 * MINUTE
    assert run_for(host, 10) == [0, 10, 20, 30, 40]


# --- full disk ------------------------------------------------------------------------------------


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make all writes fail, as on a full disk."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        yield


def test_full_disk_queues_readings(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.agent.collect(START)
    with full_disk(monkeypatch):
        host.source.trouble = NoSourceError("none")
        host.agent.collect(START + 10 * MINUTE)
        host.source.trouble = None
        for tick in (2, 3):
            assert len(host.agent.collect(START + tick * 10 * MINUTE)) == 2
        assert len(host.spooled()) == 1
    host.agent.collect(START + 40 * MINUTE)
    assert [batch for batch, _ in host.spooled()] == ["faults"] + ["batches"] * 4
    assert [line for line in host.said if "spool" in line] == [
        f"{host.folder}/state/spool/1-faults: cannot be written (No space left on device); "
        "batches are queued in memory",
        "the spool can be written again",
    ]


def test_memory_queue_is_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_disk(monkeypatch):
        for tick in range(502):
            host.agent.collect(START + tick * 10 * MINUTE)
    host.agent.collect(START + 5020 * MINUTE)
    assert sum("dropped the oldest one" in line for line in host.said) == 3
    assert len(host.spooled()) == 500


def test_schedule_continues_on_full_disk(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_disk(monkeypatch):
        assert run_for(host, 25) == []
    assert run_for(host, 15) == [0, 10, 20, 30, 40]


def test_queued_reading_is_repeated_after_kill(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_disk(monkeypatch):
        run_for(host, 5)
    host.restart()
    host.clock.time = START + 2 * MINUTE
    assert run_for(host, 1) == [0]


def test_full_disk_rereads_log_lines(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_disk(monkeypatch):
        for _ in range(6):
            host.write(xid(0, 79))
            host.write(xid(1, 13))
            assert host.agent.follow() == 0
    assert host.agent.follow() == 12
    faults = [event for event in host.events() if event[0] == "faults"]
    assert faults == [("faults", "xid", 79)] * 3
    assert [event for event in host.events() if event[2] == 13] == [("batches", "xid", 13)] * 6
    assert sum("fault: xid" in line for line in host.said) == 1
    host.agent.follow()
    assert len(host.spooled()) == 2


def test_unreadable_log_on_full_disk_reported_later(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.log.unlink()
    with full_disk(monkeypatch):
        host.agent.follow()
    host.agent.follow()
    host.agent.follow()
    assert host.events() == [("faults", "blind", None)]


# --- corrupt state --------------------------------------------------------------------------------

STATE = ["gpus.json", "log.json", "schedule.json"]


def _as_folder(path: Path) -> None:
    path.mkdir()
    (path / "x").touch()


SPOILT: dict[str, bytes | Callable[[Path], None]] = {
    "empty": b"",
    "truncated": b'{"last": 17',
    "a list": b"[1]",
    "null": b"null",
    "no UTF-8": b'{"last": "\xff\xfe"}',
    "deep": b"[" * 100_000,
    "huge": b'{"x": "' + b" " * (2 << 20) + b'"}',
    "a folder": _as_folder,
    "a pipe": os.mkfifo,
    "wrong values": json.dumps(
        {"known": [], "missing": {"a": 1}, "inode": "x", "offset": -1, "last": None}
    ).encode(),
    "numbers without end": json.dumps({"last": 10**40, "offset": 10**40, "known": 1}).encode(),
    "wrong GPUs": json.dumps(
        {"known": {"S0": {"serial": 5}}, "offset": None, "inode": 1.5, "last": -1}
    ).encode(),
}


@pytest.mark.parametrize("name", STATE)
@pytest.mark.parametrize("content", SPOILT.values(), ids=SPOILT)
def test_corrupt_state_is_reset(
    host: Host, name: str, content: bytes | Callable[[Path], None]
) -> None:
    host.write(xid(0, 13))
    host.agent.follow()
    run_for(host, 5)
    state = host.folder / "state"
    for _ in range(2):  # an earlier .bad file is replaced
        (state / name).unlink()
        content(state / name) if callable(content) else (state / name).write_bytes(content)
        host.said.clear()
        host.restart()
        host.agent.follow()
        run_for(host, 11)
        (line,) = [line for line in host.said if "and reset" in line]
        assert line.startswith(f"{state / name}: cannot be used (")
        assert len(line) < 300
        assert (state / f"{name}.bad").exists()
        assert json.loads((state / name).read_text())
    assert {event for event in host.events() if event[1] == "lost"} == set()


# --- bursts of lines ------------------------------------------------------------------------------


def storm(host: Host, lines: int, code: int = 79, spacing: float = 0.0) -> None:
    """Write fatal lines of two GPUs, `spacing` seconds apart."""
    start = dt.datetime.fromtimestamp(START / SECOND, dt.UTC)
    with host.log.open("a") as file:
        for number in range(lines):
            time = start + dt.timedelta(seconds=number * spacing)
            file.write(f"{time.isoformat('T', 'microseconds')} n kernel: {xid(number % 2, code)}\n")


def used(host: Host) -> int:
    return sum(path.stat().st_size for path in (host.folder / "state/spool").rglob("*.json"))


def test_burst_of_fatal_lines_is_rate_limited(host: Host) -> None:
    host.agent.collect()
    storm(host, 5000)
    host.agent.follow()
    faults = [event for event in host.events() if event[0] == "faults"]
    assert faults == [("faults", "xid", 79)] * 6
    assert used(host) < 50_000
    host.clock.time += 10 * MINUTE
    host.agent.follow()
    counted = [
        event
        for _, content in host.spooled()
        for event in content["events"]
        if event["kind"] == "suppressed"
    ]
    assert [event["count"] for event in counted] == [2497, 2497]
    assert {event["gpu_serial"] for event in counted} == {"S0", "S1"}
    assert counted[0]["raw"].startswith("2497 more of xid 79 in one interval")


def test_repeating_gpu_reported_every_interval(host: Host) -> None:
    host.agent.collect()
    storm(host, 600, spacing=6.0)  # an hour
    host.clock.time += HOUR
    host.agent.follow()
    events = [event for _, content in host.spooled() for event in content.get("events", [])]
    heard = {
        (e["gpu_serial"], e["timestamp"] // (10 * MINUTE)) for e in events if e["kind"] == "xid"
    }
    assert len(heard) == 12
    assert sum(event["count"] for event in events) == 600


@pytest.mark.parametrize("spacing", [0.0, 60.0])
def test_burst_respects_spool_limit(host: Host, spacing: float) -> None:
    host.agent.collect()
    storm(host, 20_000, spacing=spacing)
    host.agent.follow()
    assert 0 < used(host) <= 1 << 20


def test_burst_costs_linear_work(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing all pairs of fatal events took three minutes for 100,000 lines."""
    most: list[int] = []
    report = Agent._report

    def counted(agent: Agent, events: list[dict[str, Any]]) -> bool:
        most.append(len(events))
        return report(agent, events)

    puts: list[int] = []
    put = Spool.put

    def put_counted(spool: Spool, batch: Any, *, fault: bool = False) -> Path:
        puts.append(len(batch["events"]))
        return put(spool, batch, fault=fault)

    monkeypatch.setattr(Agent, "_report", counted)
    monkeypatch.setattr(Spool, "put", put_counted)
    storm(host, 10_000)
    assert host.agent.follow() == 10_000
    assert most == [1000] * 10
    assert (len(puts), sum(puts)) == (1, 6)


# --- the spool -----------------------------------------------------------------------------------


def test_spool_order_survives_restarts(tmp_path: Path) -> None:
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


def test_full_spool_evicts_oldest_readings_first(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 850)
    spool.put({"x": "f" * 500}, fault=True)
    for number in range(5):
        spool.put({"x": str(number) * 100})
    assert [path.stem[-1] for path in spool.waiting()] == ["1", "4", "5", "6"]
    assert spool.dropped == 2


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a policy without a collector, on a host with its own nvidia-smi."""
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


def test_once_prints_record_without_state(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--policy", str(policy), "--once"]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["gpu_serial"], row["temperature_gpu"], row["log_read"]) == ("S0", 40.0, True)
    assert row["boot_time"] > 0
    assert not (policy.parent / "state").exists()


def test_once_without_collector_keeps_batch(
    policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.write_text('collector = "http://127.0.0.1:9"\n' + policy.read_text())
    monkeypatch.setenv("FOREWARN_TOKEN", "secret")
    assert main(["agent", "--policy", str(policy), "--once"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 1
    assert "not sent, will retry" in said.err
    assert "secret" not in said.err
    assert len(list((policy.parent / "state" / "spool").glob("*/*.json"))) == 1


@pytest.fixture
def daemon(policy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the command of an agent whose collector is unreachable."""
    policy.write_text('collector = "http://127.0.0.1:9"\n' + policy.read_text())
    monkeypatch.setenv("FOREWARN_TOKEN", "secret")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield ["agent", "--policy", str(policy)]
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("part", ["collect_on_schedule", "follow_log"])
def test_failed_thread_stops_agent(
    daemon: list[str],
    part: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def dies(*_: object) -> None:
        raise ValueError("of all things")

    monkeypatch.setattr(Agent, part, dies)
    assert main(daemon) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "failed" in line]
    assert re.search(r"stopping the agent: ValueError: of all things \(test_agent.py:\d+\)", line)


def test_log_is_read_before_first_reading(
    daemon: list[str], policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first record after each start would not know whether there was an Xid."""

    def collect_once(agent: Agent) -> None:
        agent.collect()
        raise ValueError("that is enough")

    monkeypatch.setattr(Agent, "collect_on_schedule", collect_once)
    assert main(daemon) == 1
    (path,) = (policy.parent / "state" / "spool" / "2-batches").glob("*.json")
    assert json.loads(path.read_text())["readings"][0]["log_read"] is True


def test_failed_sender_stops_agent(daemon: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise ValueError("of all things")

    monkeypatch.setattr(Sender, "run", dies)
    assert main(daemon) == 1


@pytest.mark.parametrize("name", ["collection.json", *STATE])
@pytest.mark.parametrize("content", SPOILT.values(), ids=SPOILT)
def test_service_starts_from_corrupt_state(
    daemon: list[str], policy: Path, name: str, content: bytes | Callable[[Path], None]
) -> None:
    path = policy.parent / "state" / name
    path.parent.mkdir()
    content(path) if callable(content) else path.write_bytes(content)
    assert main([*daemon, "--once"]) == 0


def test_obstacles_are_moved_aside(
    daemon: list[str], policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = policy.parent / "state"
    (state / "lock").mkdir(parents=True)
    (state / "spool" / "2-batches").mkdir(parents=True)
    (state / "spool" / "1-faults").touch()
    (state / "spool" / "2-batches" / "notes.txt").touch()
    (state / ".gpus.json.tmp").write_text("{")
    assert main([*daemon, "--once"]) == 0
    assert len(list((state / "spool" / "2-batches").glob("*.json"))) == 1
    assert not list(state.rglob(".*"))
    said = capsys.readouterr().err
    for name in ("lock: cannot be used", "1-faults: cannot be used", "notes.txt: not a batch"):
        assert name in said


def test_control_characters_are_not_printed(
    daemon: list[str], policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (policy.parent / "kern.log").write_text(
        f"2025-03-01T00:00:00+00:00 n kernel: {xid(0, 79)} \x1b[2J \u202eevil\n", encoding="utf-8"
    )
    assert main([*daemon, "--once"]) == 0
    said = capsys.readouterr().err
    assert "fault: xid 79" in said
    assert all(line.isprintable() for line in said.splitlines())


@pytest.mark.parametrize("token", ["secret\n", " secret", "secret\r\n"])
def test_token_whitespace_is_stripped(
    daemon: list[str], token: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("FOREWARN_TOKEN", token)
    assert main([*daemon, "--once"]) == 0
    said = capsys.readouterr()
    assert "not sent, will retry" in said.err
    assert "secret" not in said.out + said.err


@pytest.mark.parametrize("token", ["sec\nret", "sec ret", "sécret", "sec\x1bret", "\n"])
def test_invalid_token_is_refused_without_printing(
    daemon: list[str], token: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("FOREWARN_TOKEN", token)
    assert main(daemon) == 2
    said = capsys.readouterr()
    assert "FOREWARN_TOKEN" in said.err
    assert "ret" not in said.out + said.err.replace("secret", "")


@pytest.mark.parametrize("address", ["http://user:s3cret@host:1", "ftp://user:s3cret@host:1"])
def test_address_with_password_is_refused(
    policy: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.write_text(f'collector = "{address}"\n')
    assert main(["agent", "--policy", str(policy)]) == 2
    said = capsys.readouterr().err
    assert "`collector`" in said
    assert "s3cret" not in said


def test_request_urls_are_not_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.INFO):
        sender = Sender("http://127.0.0.1:9", "secret", Spool(tmp_path, 1), FakeClock())
        sender._client = httpx.Client(
            base_url="http://collector",
            transport=httpx.MockTransport(lambda _: httpx.Response(200)),
        )
        sender.policy()
        sender.close()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('colector = "x"', "unknown key `colector`"),
        ('collector = "collector:8470"', "expected an address such as"),
        ('machine_id = "../x"', "expected a name of letters"),
        ('[collection]\ninterval = "soon"', "expected a duration"),
        ('[collection]\nsources = ["disk"]', "'gpu', 'kernel_log' or 'proc'"),
        ("x = [", "is not a TOML file"),
        ('collector = "http://127.0.0.1:9"', "FOREWARN_TOKEN is not set"),
        ('gpu = "nvml"', "no GPU was read"),
    ],
)
def test_invalid_policy_error_is_last_line(
    policy: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy.write_text(text)
    assert main(["agent", "--policy", str(policy), "--once"]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_daemon_requires_collector(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--policy", str(policy)]) == 2
    assert "the policy has no `collector`" in capsys.readouterr().err


def test_agent_imports_neither_numpy_nor_arrow() -> None:
    import subprocess
    import sys

    code = (
        "import sys, forewarn.pipelines.agent.agent_service, forewarn.pipelines.cli.main; "
        "import forewarn.pipelines.agent.jobs.job_collector; "
        "print(sorted({'numpy', 'pandas', 'pyarrow', 'keras', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_new_lost_gpu_message_names_gpu(tmp_path: Path) -> None:
    program, state = tmp_path / "nvidia-smi", tmp_path / "lost"
    header = "index, serial, uuid, pci.bus_id, temperature.gpu"
    rows = [f"{n}, S{n}, GPU-{n}, 00000000:{bus}:00.0, 4{n}" for n, bus in ((0, "19"), (1, "3B"))]
    line = "Unable to determine the device handle for GPU0: 0000:19:00.0: Unknown Error"
    program.write_text(
        f"#!/bin/sh\nif [ -e {state} ]; then echo '{line}'; echo '{header}'; echo '{rows[1]}'; "
        f"exit 15; fi\necho '{header}'; echo '{rows[0]}'; echo '{rows[1]}'\n"
    )
    program.chmod(0o755)
    host = Host(tmp_path, source=NvidiaSmi(str(program)))
    host.agent.collect()
    assert host.events() == []
    state.touch()
    for _ in range(3):
        host.agent.collect()
    assert host.events() == [("faults", "lost", "S0")]
    host.agent.close()


def test_flood_of_corrected_errors_is_few_events(host: Host) -> None:
    line = "pcieport 0000:10:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer"
    start = host.clock.time = START // MINUTE * MINUTE + MINUTE
    for second in range(90):
        host.clock.time = start + second * SECOND
        stamp = dt.datetime.fromtimestamp(host.clock.time // SECOND, dt.UTC).isoformat()
        with host.log.open("a") as file:
            file.write(f"{stamp} node-1 kernel: {line}\n")
        host.agent.follow()
    host.clock.time = start + 3 * MINUTE
    host.agent.follow()
    counts = [event["count"] for _, batch in host.spooled() for event in batch["events"]]
    assert sorted(counts) == [1, 1, 29, 59]
