"""A collector that is killed a hundred times at random moments, compared with the sent batches."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.features.time_units import HOUR, MINUTE
from forewarn.pipelines.agent.sender import Sender, SendError
from forewarn.pipelines.agent.spool import Spool
from forewarn.pipelines.collector.collector_service import run_collector
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.runtime.clock import SystemClock

pytestmark = pytest.mark.long

KILLS, GPUS = 100, 8
# Whole hours of this week: rows from the future or older than a month are rejected.
START = (time.time_ns() // (60 * MINUTE) - 6 * 24) * HOUR
SETTINGS = Settings.model_validate({"collector": {"publish_every": "10ms"}})


def batch(number: int) -> dict[str, Any]:
    """Return one reading of a host and an Xid; each number is ten minutes later."""
    time_of = START + number * 10 * MINUTE
    readings = [
        {
            "timestamp": time_of,
            "machine_id": "node-1",
            "gpu_serial": f"S{gpu}",
            "pci": f"0000:1{gpu}:00",
            "slot": gpu,
            "temperature_gpu": float(number + gpu),
            "log_read": True,
        }
        for gpu in range(GPUS)
    ]
    event = {
        "timestamp": time_of - MINUTE,
        "machine_id": "node-1",
        "id": f"event-{number}",
        "kind": "xid",
        "code": 13,
        "pci": f"0000:1{number % GPUS}:00",
        "raw": f"line {number}",
    }
    return {"readings": readings, "events": [event]}


class Site:
    """A spool, a sender that retries forever, and a collector that is started and killed."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.out = folder / "records"
        self.spool = Spool(folder / "spool", 1 << 30)
        self.sender = Sender(f"http://127.0.0.1:{self.port}", "secret", self.spool, SystemClock())
        self.over = threading.Event()
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["forewarn.pipelines.collector.collector_service"])

    def send(self) -> None:
        while not self.over.is_set():
            with contextlib.suppress(SendError):
                self.sender.send_all()
            time.sleep(0.01)

    def start(self) -> multiprocessing.process.BaseProcess:
        process = self.context.Process(
            target=run_collector,
            args=(SETTINGS, self.out),
            kwargs={"cmdb": None, "repairs": None, "tokens": "site=secret", "port": self.port},
        )
        process.start()
        return process

    def wait_for(self, process: multiprocessing.process.BaseProcess) -> None:
        """Wait until a collector listens, however busy the machine is."""
        while process.is_alive():
            address = ("127.0.0.1", self.port)
            with contextlib.suppress(OSError), socket.create_connection(address, timeout=1):
                return
            time.sleep(0.005)

    def interrupted(self) -> bool:
        """Return whether a write was in progress or batches waited to land."""
        return any((self.out / "_inbox").glob("*")) or any(self.out.rglob(".*.tmp"))

    def wait_until_at_work(self, process: multiprocessing.process.BaseProcess) -> None:
        """Wait until a kill would interrupt something, or no work remains."""
        while process.is_alive() and not self.interrupted() and self.spool.waiting():
            time.sleep(0.001)


@pytest.fixture(scope="module")
def killed(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> tuple[Path, int, int]:
    """Return the records, the number of sent batches, and the number of effective kills."""
    site, moments = Site(tmp_path_factory.mktemp("killed"), free_port()), random.Random(7)
    sending = threading.Thread(target=site.send)
    sending.start()
    sent = interrupted = 0
    try:
        for number in range(KILLS):
            process = site.start()
            if number % 4:  # every fourth may be killed during its start
                site.wait_for(process)
            for _ in range(moments.randrange(1, 5)):
                site.spool.put(batch(sent))
                sent += 1
                time.sleep(moments.uniform(0.0, 0.05))
            if number % 2:
                site.wait_until_at_work(process)  # independent of the machine's speed
            else:
                time.sleep(moments.uniform(0.0, 0.1))
            assert process.pid is not None
            process.kill()
            process.join()
            assert process.exitcode == -signal.SIGKILL
            interrupted += site.interrupted()
        process = site.start()
        while site.spool.waiting() or site.interrupted():
            assert process.is_alive()
            time.sleep(0.05)
        process.terminate()
        process.join(60)
    finally:
        site.over.set()
        sending.join()
        site.sender.close()
    return site.out, sent, interrupted


def test_kills_interrupt_work(killed: tuple[Path, int, int]) -> None:
    _, sent, interrupted = killed
    assert sent > KILLS
    assert interrupted > KILLS // 10


def test_records_are_complete_and_unique(killed: tuple[Path, int, int]) -> None:
    out, sent, _ = killed
    files = sorted(out.glob("date=*/*.parquet"))
    table = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)
    rows = table.select(["gpu_serial", "timestamp", "temperature_gpu", "xid"]).to_pylist()
    got = sorted(
        (r["gpu_serial"], r["timestamp"].value, r["temperature_gpu"], r["xid"]) for r in rows
    )
    assert got == sorted(
        (f"S{gpu}", START + n * 10 * MINUTE, float(n + gpu), 13 if n % GPUS == gpu else 0)
        for n in range(sent)
        for gpu in range(GPUS)
    )


def test_events_are_complete_and_unique(killed: tuple[Path, int, int]) -> None:
    out, sent, _ = killed
    events = pq.read_table(out / "_events").to_pylist()
    assert sorted(event["raw"] for event in events) == sorted(f"line {n}" for n in range(sent))
    assert all(event["gpu_serial"] == f"S{event['pci'][6]}" for event in events)


def test_no_temporary_files_remain(killed: tuple[Path, int, int]) -> None:
    out, _, _ = killed
    assert not list(out.rglob("*.tmp"))
    assert not list((out / "_inbox").iterdir())
