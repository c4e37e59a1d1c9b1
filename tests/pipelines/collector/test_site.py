"""Ten hosts and a collector as real processes, four hours in a minute and a half.

Each host has its own fault: a killed agent, a network outage, a clock that is set back, a lost GPU.
The records must equal those in the script of the site.

All processes read one clock, which this process advances. The clock stops while a process has work
due by then, so that a slow machine takes longer but gives the same result.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.long

SCALED = Path(__file__).with_name("scaled.py")
SPEED = 160
STEP = 0.02  # real seconds between two steps of the clock
PATIENCE = 300.0  # maximum real seconds for which the clock stops
TICK = 10 * MINUTE
START = pd.Timestamp("2025-03-01", tz="UTC").value
EARLY = 2 * MINUTE  # the clock stops here until eleven processes have started
END = START + 240 * MINUTE
HOSTS, GPUS = 10, 4
KILLED, CUT, BACK, LOST, XIDS, HUNG, GONE, STRANGE = 3, 4, 6, 2, 5, 7, 8, 9
JUMP_AT, JUMP = START + 121 * MINUTE, -20 * MINUTE
# /proc would report the boot time of this machine, which is not in the script.
COLLECTION = '[collection]\nsources = ["gpu", "kernel_log"]\ntimeout = "10s"\n'
COLUMNS = ["temperature_gpu", "power_draw", "ecc_corrected", "xid"]

# Every host runs this as nvidia-smi. It knows the host's time and faults.
FAKE = """#!/bin/sh
sim=$(cat {shared})
[ $sim -ge {jump_at} ] && sim=$(( sim + {jump} ))
k=$(( (sim - {start}) / {tick} ))
minute=$(( (sim - {start}) / {minute} ))
[ {hang} = 1 ] && [ $minute -ge 90 ] && [ $minute -lt 100 ] && sleep 100
echo "index, serial, uuid, pci.bus_id, name, driver_version, temperature.gpu, power.draw [W], \
ecc.errors.corrected.aggregate.total"
for g in 0 1 2 3; do
    [ {lost} = 1 ] && [ $g = 1 ] && [ $minute -ge 63 ] && continue
    [ {gone} = 1 ] && [ $g = 2 ] && [ $minute -ge 145 ] && [ $minute -lt 185 ] && continue
    echo "$g, S{host}$g, GPU-{host}$g, 00000000:1$g:00.0, NVIDIA H100, 550.1, \
$(( 40 + ({host} * 7 + g * 3 + k * 5) % 30 )), $(( 200 + k )).50 W, $(( k * 2 ))"
done
"""


@dataclass
class Hold:
    """A time at which the clock stops until a condition holds."""

    moment: int
    what: str
    done: Callable[[], bool]


class SiteClock:
    """A clock in a file that runs `SPEED` times as fast as the real one, except for its holds."""

    def __init__(self, file: Path, moment: int) -> None:
        self.file = file
        self.holds: list[Hold] = []
        self.late: list[str] = []
        self.over = threading.Event()
        self.write(moment)

    def write(self, moment: int) -> None:
        self.moment = moment
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(str(moment))
        temporary.replace(self.file)

    def run(self) -> None:
        """Advance the clock; a step that comes late because of load is shortened."""
        holds, stood = sorted(self.holds, key=lambda hold: hold.moment), 0.0
        last = time.monotonic()
        while not self.over.wait(STEP):
            last, before = time.monotonic(), last
            passed = min(last - before, 2 * STEP)
            if holds and self.moment == holds[0].moment:
                stood += last - before
                if not holds[0].done() and stood < PATIENCE:
                    continue
                if stood >= PATIENCE:
                    self.late.append(holds[0].what)
                del holds[0]
                stood = 0.0
            following = self.moment + int(passed * SPEED * SECOND)
            self.write(min([following, *(hold.moment for hold in holds[:1])]))


@dataclass
class Site:
    """Folder, processes and clock of a site."""

    folder: Path
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    relay: Relay | None = None

    def __post_init__(self) -> None:
        self.clock = SiteClock(self.folder / "clock", START - EARLY)
        self.clock.holds = [
            Hold(START - EARLY, "the collector has started", self.listens),
            Hold(START + 65 * MINUTE, "the collector has the fatal Xid", self.knows_fault),
            Hold(END + 6 * MINUTE, "all has been sent and has landed", self.is_idle),
            *(
                Hold(START + tick * TICK + MINUTE, f"tick {tick} is read", self.reading_of(tick))
                for tick in range(25)
            ),
        ]

    @property
    def records(self) -> Path:
        return self.folder / "records"

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def knows_fault(self) -> bool:
        files = [*self.records.glob("_inbox/*.events"), *self.records.glob("_events/**/*.parquet")]
        return bool(files)

    def is_idle(self) -> bool:
        spooled = self.folder.glob("node-*/state/spool/*/*.json")
        return not any(spooled) and not any((self.records / "_inbox").glob("*"))

    def reading_of(self, tick: int) -> Callable[[], bool]:
        return lambda: all(self.last_tick(host) >= own_tick(host, tick) for host in range(HOSTS))

    def last_tick(self, host: int) -> int:
        """Return the last scheduled time that an agent has read and spooled."""
        path = self.folder / f"node-{host}" / "state" / "schedule.json"
        with contextlib.suppress(FileNotFoundError):
            return int((json.loads(path.read_text())["last"] - START) // TICK)
        return -1

    def wait_for(self, moment: int) -> None:
        while self.clock.moment < moment:
            time.sleep(STEP)

    def log(self, host: int, moment: int, message: str) -> None:
        """Write a line to the kernel log of a host at its time."""
        self.wait_for(moment)
        stamp = pd.Timestamp(moment, tz="UTC").strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
        with (self.folder / f"node-{host}" / "kern.log").open("a") as file:
            file.write(f"{stamp} node-{host} kernel: {message}\n")

    def start(self, name: str, *arguments: str, **environment: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [sys.executable, str(SCALED), *arguments],
                env=os.environ | environment,
                stdout=out,
                stderr=out,
            )

    def start_agent(self, host: int) -> None:
        place = self.folder / f"node-{host}"
        self.start(
            f"node-{host}",
            *("agent", str(place / "agent.toml"), str(place / "clock.json")),
            FOREWARN_TOKEN="secret-of-the-site",
            PATH=f"{place}:{os.environ['PATH']}",
        )

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(PATIENCE)
        if self.relay is not None:
            self.relay.close()


def own_tick(host: int, tick: int) -> int:
    """Return the tick that a host reads at a site tick; a clock set back repeats none."""
    return max(min(tick, 12), tick - 2) if host == BACK else tick


class Relay:
    """Proxy that forwards connections to a port until it is cut."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.cut = False
        self.open: list[socket.socket] = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                self.server.close()
                return
            if self.cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:  # the collector is still starting
                near.close()
                continue
            self.open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    def copy(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                other.sendall(data)
        except OSError:
            pass
        one.close()
        other.close()

    def disconnect(self) -> None:
        self.cut = True
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.disconnect()
        self.server.shutdown(socket.SHUT_RDWR)


def build(site: Site) -> None:
    """Write the input files of all processes."""
    (site.folder / "config.toml").write_text(f'{COLLECTION}[collector]\npublish_every = "500ms"\n')
    rows = [f"S{h}{g},rack-{h},dc-1,2027-01-01" for h in range(HOSTS) for g in range(GPUS)]
    rows.remove(f"S{STRANGE}3,rack-{STRANGE},dc-1,2027-01-01")
    (site.folder / "cmdb.csv").write_text(
        "\n".join(["gpu_serial,rack,data_center,expiration_date", *rows]) + "\n"
    )
    (site.folder / "repairs.csv").write_text(
        "gpu_serial,failed_at,repaired_at,cause,known_at\n"
        "S40,2025-03-01T02:05:00Z,2025-03-01T03:00:00Z,board,2025-03-01T02:20:00Z\n"
    )
    site.relay = Relay(site.port)
    for host in range(HOSTS):
        build_host(site, host)


def build_host(site: Site, host: int) -> None:
    place = site.folder / f"node-{host}"
    place.mkdir()
    jump = (JUMP_AT, JUMP) if host == BACK else (2**62, 0)
    clock = {"file": str(site.clock.file), "speed": SPEED}
    (place / "clock.json").write_text(json.dumps(clock | {"jump_at": jump[0], "jump": jump[1]}))
    assert site.relay is not None
    port = site.relay.port if host == CUT else site.port
    (place / "agent.toml").write_text(
        f'collector = "http://127.0.0.1:{port}"\nstate = "{place}/state"\n'
        f'machine_id = "node-{host}"\nkernel_log = "{place}/kern.log"\ngpu = "nvidia-smi"\n'
        f"{COLLECTION}"
    )
    (place / "kern.log").touch()
    smi = place / "nvidia-smi"
    smi.write_text(
        FAKE.format(
            **{"shared": site.clock.file},
            **{"jump_at": jump[0], "jump": jump[1], "start": START, "tick": TICK},
            **{"minute": MINUTE, "host": host, "hang": int(host == HUNG)},
            **{"lost": int(host == LOST), "gone": int(host == GONE)},
        )
    )
    smi.chmod(0o755)


def xid(gpu: int, code: int, text: str = "text") -> str:
    return f"NVRM: Xid (PCI:0000:1{gpu}:00): {code}, pid=77, name=python, {text}"


def write_logs(site: Site) -> None:
    """Write the kernel logs in time order."""
    site.log(0, START + 30 * MINUTE, "eth0: link becomes ready")
    site.log(LOST, START + 63 * MINUTE + 20 * SECOND, xid(1, 79, "GPU has fallen off the bus."))
    # The network outage begins: lines of node 4 arrive an hour later from now on.
    assert site.relay is not None
    site.relay.disconnect()
    for second in range(3):
        site.log(XIDS, START + 72 * MINUTE + second * SECOND, xid(0, 63))
    site.log(XIDS, START + 73 * MINUTE, xid(0, 13))
    site.log(CUT, START + 75 * MINUTE, xid(2, 31))
    for minute in range(80, 120):
        site.log(KILLED, START + minute * MINUTE, xid(3, 13, f"line {minute}"))
    site.wait_for(START + 124 * MINUTE)
    site.relay.cut = False
    # The clock of node 6 was set back at 121 minutes: this is minute 135 on all other hosts.
    site.wait_for(START + 135 * MINUTE)
    site.log(BACK, START + 115 * MINUTE, xid(0, 43))


def kill_agent(site: Site) -> None:
    """Kill the agent of one host repeatedly, at irregular times."""
    for minute in (78, 84, 89, 93, 99, 104, 110, 117):
        site.wait_for(START + minute * MINUTE)
        site.processes[f"node-{KILLED}"].send_signal(signal.SIGKILL)
        site.processes[f"node-{KILLED}"].wait()
        site.start_agent(KILLED)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Site:
    site = Site(tmp_path_factory.mktemp("site"), free_port())
    build(site)
    pace = threading.Thread(target=site.clock.run)
    pace.start()
    try:
        site.start(
            "collector",
            *("collect", str(site.records), str(site.folder / "config.toml")),
            *(str(site.folder / "node-0" / "clock.json"), str(site.port)),
            *(str(site.folder / "cmdb.csv"), str(site.folder / "repairs.csv")),
            FOREWARN_TOKENS="site=secret-of-the-site",
        )
        for host in range(HOSTS):
            site.start_agent(host)
        killer = threading.Thread(target=kill_agent, args=(site,))
        killer.start()
        write_logs(site)
        killer.join()
        site.wait_for(END + 6 * MINUTE + SECOND)
    finally:
        site.stop()
        site.clock.over.set()
        pace.join()
    assert site.clock.late == []
    return site


@pytest.fixture(scope="module")
def records(site: Site) -> pd.DataFrame:
    """Return the records of the four hours."""
    files = sorted(site.records.glob("date=*/*.parquet"))
    found = pd.concat([pq.read_table(file, partitioning=None).to_pandas() for file in files])
    time = found["timestamp"].astype("int64")
    chosen: pd.DataFrame = found[(time > START) & (time <= END)]
    return chosen.reset_index(drop=True)


def test_records_equal_script(records: pd.DataFrame) -> None:
    got = records.set_index(["gpu_serial", "timestamp"])[COLUMNS].sort_index()
    assert not got.index.has_duplicates
    want = pd.DataFrame(list(script())).set_index(["gpu_serial", "timestamp"]).sort_index()
    pd.testing.assert_frame_equal(got, want[COLUMNS], check_dtype=False, check_index_type=False)


def script() -> Iterator[dict[str, Any]]:
    """Yield the readings of all GPUs according to the script."""
    xids = {(XIDS, 0, 8): 63, (CUT, 2, 8): 31, (BACK, 0, 12): 43}
    xids |= {(KILLED, 3, tick): 13 for tick in (8, 9, 10, 11, 12)}
    for host in range(HOSTS):
        # Set back by 20 minutes, node 6 ends that much earlier and repeats no reading.
        ticks = range(1, 23 if host == BACK else 25)
        for gpu in range(GPUS):
            for tick in ticks:
                if host == HUNG and tick == 9:
                    continue
                if host == LOST and gpu == 1 and tick >= 7:
                    continue
                if host == GONE and gpu == 2 and 15 <= tick <= 18:
                    continue
                yield {
                    "gpu_serial": f"S{host}{gpu}",
                    "timestamp": pd.Timestamp(START + tick * TICK, tz="UTC"),
                    "temperature_gpu": 40.0 + (host * 7 + gpu * 3 + tick * 5) % 30,
                    "power_draw": 200.5 + tick,
                    "ecc_corrected": 2 * tick,
                    "xid": xids.get((host, gpu, tick), 0),
                }


def test_cmdb_columns_are_joined(records: pd.DataFrame) -> None:
    known = records[records["gpu_serial"] != f"S{STRANGE}3"]
    assert (known["rack"] == "rack-" + known["gpu_serial"].str[1]).all()
    assert (known["machine_id"] == "node-" + known["gpu_serial"].str[1]).all()
    assert (known["slot"].astype(str) == known["gpu_serial"].str[2]).all()
    strange = records[records["gpu_serial"] == f"S{STRANGE}3"]
    assert len(strange) == 24
    assert strange["rack"].isna().all()


def test_every_event_occurs_once(site: Site) -> None:
    events = pq.read_table(site.records / "_events").to_pandas()
    xids = events[events["kind"] == "xid"]
    xids = xids.assign(time=xids["timestamp"].astype("int64"))
    got = sorted(xids[["gpu_serial", "time", "code"]].itertuples(index=False, name=None))
    at = {
        (f"S{LOST}1", 63 * MINUTE + 20 * SECOND): 79,
        **{(f"S{XIDS}0", 72 * MINUTE + second * SECOND): 63 for second in range(3)},
        (f"S{XIDS}0", 73 * MINUTE): 13,
        (f"S{CUT}2", 75 * MINUTE): 31,
        (f"S{BACK}0", 115 * MINUTE): 43,
        **{(f"S{KILLED}3", minute * MINUTE): 13 for minute in range(80, 120)},
    }
    assert got == sorted((serial, START + since, code) for (serial, since), code in at.items())
    assert set(xids["pid"]) == {77}
    hangs = events[events["kind"] == "hang"]
    assert list(hangs["machine_id"]) == [f"node-{HUNG}"]


def test_failures_equal_script(site: Site) -> None:
    failures = pq.read_table(site.records / "failures.parquet").to_pandas().set_index("gpu_serial")
    assert list(failures.index) == [f"S{LOST}1", "S40", f"S{GONE}2"]
    fatal, ticket, gone = (failures.loc[s] for s in failures.index)
    assert (fatal["cause"], fatal["failed_at"].value) == (
        "xid 79",
        START + 63 * MINUTE + 20 * SECOND,
    )
    assert pd.isna(fatal["repaired_at"])
    # Known within ten real seconds of the line, on a clock on which a second takes 6 ms.
    assert 0 <= fatal["known_at"].value - fatal["failed_at"].value < 10 * SECOND * SPEED / 10
    assert (ticket["cause"], str(ticket["known_at"])) == ("board", "2025-03-01 02:20:00+00:00")
    assert gone["cause"] == "lost"
    assert gone["failed_at"].value == START + 150 * MINUTE
    assert gone["repaired_at"].value == START + 190 * MINUTE


def test_fault_report_has_context(site: Site) -> None:
    events = pq.read_table(site.records / "_events").to_pandas()
    context = json.loads(events[events["code"] == 79]["context"].item())
    assert [row["timestamp"] for row in context["readings"]] == [
        START + tick * TICK for tick in (4, 5, 6)
    ]
    assert "fallen off the bus" in context["log"][-1]


def test_no_temporary_files_remain(site: Site) -> None:
    left = [path for path in site.records.rglob("*") if path.name.endswith(".tmp")]
    assert left == []
    assert not list((site.records / "_inbox").glob("*"))
    for host in range(HOSTS):
        spool = site.folder / f"node-{host}" / "state" / "spool"
        assert not list(spool.glob("*/*.json"))


def test_rules_rank_collected_records(site: Site, tmp_path: Path) -> None:
    arguments = ["--records", str(site.records), "--out", str(tmp_path), "--model", "builtin:rules"]
    assert main(["score", *arguments, "--at", "2025-03-01T04:00:00Z"]) == 0
    (path,) = tmp_path.glob("date=*/at_risk.csv")
    ranked = pd.read_csv(path)
    assert ranked["gpu_serial"].iloc[0] == f"S{XIDS}0"
    (path,) = tmp_path.glob("date=*/unscored.csv")
    assert f"S{LOST}1" in set(pd.read_csv(path)["gpu_serial"])
