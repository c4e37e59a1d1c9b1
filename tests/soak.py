"""Soak test: ten agents and a collector for some minutes, with faults and random kills.

    python tests/soak.py [--minutes 20] [--speed 160] [--seed 0] [--keep DIR]

The processes are real; their clock runs 160 times as fast, so 20 minutes are 53 hours. On a busy
machine processes start too slowly for that: lower the speed then. One host has an nvidia-smi that
fails, one a clock that is 11 hours ahead, one a kernel log full of NULs. Agents and collector are
killed without warning at random times and restarted. At the end nothing acknowledged may be lost or
duplicated, no GPU may be falsely failed, and each day's list must exist once, written after its
midnight, over all GPUs. Prints a table and exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pyarrow.parquet as pq

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND
from forewarn.pipelines.at_risk.fleet_scoring import score_with_rules
from forewarn.pipelines.config.settings import Settings, load_settings
from forewarn.pipelines.ingest.complete_days import complete_days
from forewarn.pipelines.scheduled_tasks import missing_days

SCALED = Path(__file__).parent / "pipelines" / "collector" / "scaled.py"
TICK = 10 * MINUTE
MIDNIGHT = pd.Timestamp("2025-03-02", tz="UTC").value  # the first one, after half of a short run
HOSTS, GPUS = 10, 4
BROKEN, AHEAD, NULS = 2, 4, 6
AHEAD_BY = 11 * HOUR
LATE = 2 * HOUR  # from midnight to the list: kills may delay the records of most GPUs
TOKEN = "secret-of-the-soak"
CONFIG = """[collection]
sources = ["gpu", "kernel_log"]
timeout = "2s"
[collector]
publish_every = "500ms"
[windows]
length = 3
[features]
float = ["temperature_gpu", "power_draw"]
counter = ["ecc_corrected"]
code = ["xid"]
history = []
residuals = []
"""
# Every host runs this as nvidia-smi; on one host it fails, in four ways by turns.
FAKE = """#!/bin/sh
now=$(date +%s%N)
sim=$(( {simulated} + (now - {real}) * {speed} ))
k=$(( sim / {tick} ))
if [ {broken} = 1 ] && [ $sim -ge {breaks} ]; then
    case $(( k % 4 )) in
        0) echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18;;
        1) exit 0;;
        2) kill -9 $$;;
        3) echo " garbage"; exit 0;;
    esac
fi
echo "index, serial, uuid, pci.bus_id, name, driver_version, temperature.gpu, power.draw [W], \
ecc.errors.corrected.aggregate.total"
for g in 0 1 2 3; do
    echo "$g, S{host}$g, GPU-{host}$g, 00000000:1$g:00.0, NVIDIA H100, 550.1, \
$(( 40 + (k + g) % 20 )), $(( 200 + k % 9 )).50 W, $(( k % 1000 ))"
done
"""


@dataclass
class Acknowledged:
    """Acknowledged data: every row of every batch answered with 200."""

    collector: str
    readings: list[tuple[str, str, int]] = field(default_factory=list)
    events: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, status: int, body: bytes) -> None:
        with self.lock:
            self.statuses[status] += 1
            if status == httpx.codes.OK:
                batch = json.loads(gzip.decompress(body))
                for row in batch.get("readings", []):
                    self.readings.append((row["machine_id"], row["gpu_serial"], row["timestamp"]))
                self.events |= {row["id"] for row in batch.get("events", [])}


def relay(acknowledged: Acknowledged) -> ThreadingHTTPServer:
    """Return a proxy that forwards requests to the collector and stores its answers."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.pass_on("GET", b"")

        def do_POST(self) -> None:
            self.pass_on("POST", self.rfile.read(int(self.headers["content-length"])))

        def pass_on(self, method: str, body: bytes) -> None:
            names = ("authorization", "content-type", "content-encoding")
            headers = {name: self.headers[name] for name in names if name in self.headers}
            url = acknowledged.collector + self.path
            try:
                with httpx.Client(trust_env=False, timeout=20) as client:
                    answer = client.request(method, url, content=body, headers=headers)
                status, content = answer.status_code, answer.content
            except httpx.HTTPError:
                status, content = 502, b""  # it was killed, perhaps after storing the batch
            if method == "POST":
                acknowledged.note(status, body)
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore errors of agents that were killed while they waited."""

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@dataclass
class Soak:
    """Folder, clock and processes of a run."""

    folder: Path
    minutes: float
    chance: random.Random
    real: int
    start: int
    port: int
    speed: int
    url: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    lists: list[tuple[str, int]] = field(default_factory=list)
    failed_lists: list[str] = field(default_factory=list)

    @property
    def records(self) -> Path:
        return self.folder / "records"

    def now(self) -> int:
        return self.start + (time.time_ns() - self.real) * self.speed

    def passed(self, share: float) -> bool:
        """Tell whether this share of the run is over."""
        return time.time_ns() - self.real >= share * self.minutes * MINUTE

    def at(self, share: float) -> int:
        """Return a time of the run on the simulated clock."""
        return self.start + round(share * self.minutes * MINUTE) * self.speed

    def launch(self, name: str) -> None:
        arguments, environment = self.command(name)
        with (self.folder / f"{name}.out").open("ab") as out:
            self.processes[name] = subprocess.Popen(
                [sys.executable, str(SCALED), *arguments],
                env=os.environ | environment,
                stdout=out,
                stderr=out,
            )

    def command(self, name: str) -> tuple[list[str], dict[str, str]]:
        home = self.folder / name
        if name != "collector":
            environment = {"FOREWARN_TOKEN": TOKEN, "PATH": f"{home}:{os.environ['PATH']}"}
            return ["agent", str(home / "agent.toml"), str(home / "clock.json")], environment
        files = [self.folder / file for file in ("config.toml", "clock.json")]
        tables = [str(self.folder / file) for file in ("cmdb.csv", "repairs.csv")]
        paths = [str(self.records), *map(str, files), str(self.port), *tables]
        return ["collect", *paths], {"FOREWARN_TOKENS": f"site={TOKEN}"}

    def kill_one(self) -> None:
        """Kill the collector or an agent; ended processes are restarted as by systemd."""
        name = self.chance.choice(
            ["collector", *(f"node-{self.chance.randrange(HOSTS)}" for _ in "ab")]
        )
        if name == "collector" and not self.listens():
            return  # on a slow machine it would never receive anything
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()
        self.kills[name.partition("-")[0]] += 1

    def listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def supervise(self) -> None:
        for name, process in self.processes.items():
            if process.poll() is not None:
                self.launch(name)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def build(soak: Soak) -> None:
    """Write all input files of the processes."""
    clock = {"real": soak.real, "simulated": soak.start, "speed": soak.speed}
    (soak.folder / "clock.json").write_text(json.dumps(clock))
    (soak.folder / "config.toml").write_text(CONFIG)
    serials = [f"S{host}{gpu}" for host in range(HOSTS) for gpu in range(GPUS)]
    (soak.folder / "cmdb.csv").write_text("\n".join(["gpu_serial", *serials]) + "\n")
    (soak.folder / "repairs.csv").write_text("gpu_serial,failed_at\n")
    for host in range(HOSTS):
        home = soak.folder / f"node-{host}"
        home.mkdir()
        own = clock | {"simulated": soak.start + (AHEAD_BY if host == AHEAD else 0)}
        (home / "clock.json").write_text(json.dumps(own))
        (home / "kern.log").touch()
        (home / "agent.toml").write_text(
            f'collector = "{soak.url}"\nstate = "{home}/state"\nmachine_id = "node-{host}"\n'
            f'kernel_log = "{home}/kern.log"\ngpu = "nvidia-smi"\n'
            '[collection]\nsources = ["gpu", "kernel_log"]\ntimeout = "2s"\n'
        )
        smi = home / "nvidia-smi"
        values = own | {"tick": TICK, "host": host, "broken": int(host == BROKEN)}
        smi.write_text(FAKE.format(**values, breaks=soak.at(0.4)))
        smi.chmod(0o755)


def troubles(soak: Soak) -> Iterator[tuple[float, Callable[[], None]]]:
    """Yield the events of kernel logs, and the share of the run after which each occurs."""

    def say(host: int, gpu: int, moment: int) -> None:
        stamp = pd.Timestamp(moment, tz="UTC").strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
        with (soak.folder / f"node-{host}" / "kern.log").open("a") as file:
            file.write(
                f"{stamp} node-{host} kernel: NVRM: Xid (PCI:0000:1{gpu}:00): 79, pid=7, "
                "name=python, GPU has fallen off the bus.\n"
            )

    def nuls() -> None:
        with (soak.folder / f"node-{NULS}" / "kern.log").open("ab") as file:
            file.write(bytes(3 << 20) + b"\n")

    yield 0.35, nuls
    yield 0.45, lambda: say(NULS, 1, soak.now())
    yield 0.50, lambda: say(AHEAD, 2, soak.now() + AHEAD_BY)


def publish(soak: Soak, settings: Settings, over: threading.Event) -> None:
    """Act as the scheduled DAGs: find complete days, and make their lists."""
    published: str | None = None
    while not over.wait(HOUR / soak.speed / SECOND / 3):
        now = soak.now()
        today = pd.Timestamp(now, tz="UTC").date().isoformat()
        try:
            days = complete_days(soak.records, settings.records.interval, now)
            for day in missing_days(days, published, today):
                soak.lists.append((day, now))
                published = day
                at = pd.Timestamp(day, tz="UTC").value + DAY
                score_with_rules(settings, soak.records, at).write(soak.folder / "lists")
        except InputError as error:
            soak.failed_lists.append(str(error))


def run(soak: Soak) -> None:
    """Start all processes, inject faults, kill processes, and wait for the remaining data."""
    settings, over = load_settings(soak.folder / "config.toml"), threading.Event()
    names = ["collector", *(f"node-{host}" for host in range(HOSTS))]
    publisher = threading.Thread(target=publish, args=(soak, settings, over))
    coming = list(troubles(soak))
    try:
        for name in names:
            soak.launch(name)
        publisher.start()
        next_kill = time.monotonic() + soak.chance.uniform(10, 14)
        while not soak.passed(1.0):
            while coming and soak.passed(coming[0][0]):
                coming.pop(0)[1]()
            if time.monotonic() >= next_kill and not soak.passed(0.85):
                soak.kill_one()
                next_kill = time.monotonic() + soak.chance.uniform(2, 10)
            soak.supervise()
            time.sleep(0.3)
        for name in names[1:]:
            soak.processes[name].terminate()
        waited = time.monotonic()
        inbox = soak.records / "_inbox"
        while any(inbox.glob("[0-9]*")) and time.monotonic() - waited < 60:
            time.sleep(0.2)
    finally:
        over.set()
        publisher.join()
        soak.stop()


# --- checks --------------------------------------------------------------------------------


def table(files: Iterable[Path]) -> pd.DataFrame:
    parts = [pq.read_table(path, partitioning=None).to_pandas() for path in sorted(files)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def falsely_failed(soak: Soak) -> str:
    """Exactly the GPU after the NULs has failed and, once it is due, that of the fast clock."""
    path = soak.records / "failures.parquet"
    if not path.exists():
        return "nothing has landed"
    failures = pq.read_table(path).to_pandas()
    got, sure, later = set(failures["gpu_serial"]), f"S{NULS}1", f"S{AHEAD}2"
    if sure in got <= {sure, later}:
        return ""
    return f"failed: {sorted(got)}, expected {sure}, perhaps {later}"


def lost(soak: Soak, acknowledged: Acknowledged) -> str:
    readings = table(soak.records.glob("_readings/*/*.parquet"))
    keys = zip(
        readings["machine_id"],
        readings["gpu_serial"],
        readings["timestamp"].astype("datetime64[ns, UTC]").astype("int64"),
        strict=True,
    )
    gone = set(acknowledged.readings) - set(keys)
    events = table(soak.records.glob("_events/*/*.parquet"))
    gone_events = acknowledged.events - set(events["id"])
    return f"{len(gone)} readings, {len(gone_events)} events" if gone or gone_events else ""


def doubled(soak: Soak) -> str:
    records = table(soak.records.glob("date=*/*.parquet"))
    events = table(soak.records.glob("_events/*/*.parquet"))
    twice = int(records.duplicated(["gpu_serial", "timestamp"]).sum())
    twice_events = int(events.duplicated(["id"]).sum())
    return f"{twice} records, {twice_events} events" if twice or twice_events else ""


def from_the_future(soak: Soak) -> str:
    """No record of the fast clock appears early, and its Xid is stored with its own time."""
    readings = table(soak.records.glob("_readings/*/*.parquet"))
    ahead = int((readings["timestamp"] > pd.Timestamp(soak.now(), tz="UTC")).sum())
    waiting = (soak.folder / f"node-{AHEAD}" / "state" / "spool").rglob("*.json")
    kept = any('"code":79' in path.read_text() for path in waiting)
    events = table(soak.records.glob("_events/*/*.parquet"))
    landed = ((events["machine_id"] == f"node-{AHEAD}") & (events["code"] == 79)).any()
    if ahead:
        return f"{ahead} readings of the future"
    return "" if kept or landed else "its Xid is neither in its spool nor here"


def lists(soak: Soak) -> str:
    """Return the errors of the lists: one for each midnight, after it, over all GPUs."""
    midnights = range(MIDNIGHT, soak.at(1.0) - LATE // 2, DAY)
    days = [pd.Timestamp(m - DAY, tz="UTC").date().isoformat() for m in midnights]
    if [day for day, _ in soak.lists] != days:
        return f"made {soak.lists}, expected {days}; {soak.failed_lists[:1]}"
    for midnight, (day, made) in zip(midnights, soak.lists, strict=True):
        if not midnight <= made <= midnight + LATE:
            return f"that of {day} was made at {pd.Timestamp(made, tz='UTC')}"
        (folder,) = (soak.folder / "lists").glob(f"date={pd.Timestamp(midnight).date()}")
        ranked = set(pd.read_csv(folder / "at_risk.csv")["gpu_serial"])
        known = ranked | set(pd.read_csv(folder / "unscored.csv")["gpu_serial"])
        healthy = [h for h in range(HOSTS) if h not in (AHEAD, BROKEN, NULS)]
        missing = {f"S{h}{g}" for h in [*healthy, NULS, BROKEN] for g in range(GPUS)} - known
        unranked = {f"S{h}{g}" for h in healthy for g in range(GPUS)} - ranked
        if missing or unranked:
            return f"that of {day} lacks {sorted(missing)}, does not rank {sorted(unranked)}"
    return ""


def judged(soak: Soak, acknowledged: Acknowledged) -> bool:
    """Print which checks passed."""
    sent, taken = sum(acknowledged.statuses.values()), acknowledged.statuses[200]
    print(f"{soak.minutes:g} minutes, {(soak.at(1.0) - soak.start) / HOUR:.0f} hours simulated")
    print(
        f"kills: {dict(soak.kills)}; batches: {sent} sent, {taken} taken, by status "
        f"{dict(acknowledged.statuses)}; {len(set(acknowledged.readings))} readings acknowledged"
    )
    print(f"lists: {[(d, str(pd.Timestamp(m, tz='UTC'))[:16]) for d, m in soak.lists]}")
    checks: dict[str, Callable[[], str]] = {
        "no GPU falsely failed": lambda: falsely_failed(soak),
        "no acknowledged row lost": lambda: lost(soak, acknowledged),
        "nothing doubled": lambda: doubled(soak),
        "nothing of the future": lambda: from_the_future(soak),
        "each list once, in time, over all": lambda: lists(soak),
    }
    wrong = {name: check() for name, check in checks.items()}
    for name, text in wrong.items():
        print(f"{name:36}{'no: ' + text if text else 'yes'}")
    return not any(wrong.values())


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def main() -> int:
    """Run the soak test and its checks; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="of the run (default: 20)")
    parser.add_argument("--speed", type=int, default=160, help="of the clock (default: 160)")
    parser.add_argument("--seed", type=int, default=0, help="of the kills (default: 0)")
    parser.add_argument("--keep", type=Path, help="folder for everything; else it is deleted")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="forewarn-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    span = round(min(arguments.minutes, 320 / arguments.speed) * MINUTE) * arguments.speed
    soak = Soak(
        folder.resolve(),
        arguments.minutes,
        random.Random(arguments.seed),
        time.time_ns(),
        MIDNIGHT - span * 6 // 10,
        free_port(),
        arguments.speed,
    )
    acknowledged = Acknowledged(f"http://127.0.0.1:{soak.port}")
    server = relay(acknowledged)
    soak.url = f"http://127.0.0.1:{server.server_port}"
    try:
        build(soak)
        run(soak)
        return 0 if judged(soak, acknowledged) else 1
    finally:
        server.shutdown()
        if arguments.keep is None:
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
