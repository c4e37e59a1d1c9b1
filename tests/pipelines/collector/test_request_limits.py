"""Bounds on the cost of a stranger, or of a stolen token, for a real collector."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

MIB = 1 << 20
DEADLINE = 5.0
HALF = ".00001740787200-0.readings.tmp"
REFUSED = 'forewarn_collector_refused_requests_total{{status="{}"}}'
SERVE = """
import sys
from pathlib import Path
from forewarn.pipelines.collector import collector_service as collect
from forewarn.pipelines.config.settings import Settings
collect._REQUEST_TIMEOUT_SECONDS = float(sys.argv[2])
settings = Settings.model_validate({"collector": {"publish_every": "50ms", "port": 0}})
collect.run_collector(settings, Path(sys.argv[1]), cmdb=None, repairs=None, tokens="site=secret\\n")
"""
HEADERS = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
POST = b"POST /v1/batches HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer secret\r\n"


@dataclass
class Running:
    process: subprocess.Popen[str]
    port: int
    out: Path

    def metric(self, name: str) -> float:
        """Return a metric of the collector; 0 if it is not counted yet."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        text = httpx.get(url, trust_env=False, timeout=60).text
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return float(values.get(name, 0))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60 + DEADLINE)

    def post(self, body: bytes, **more: str) -> httpx.Response:
        headers = HEADERS | {name.replace("_", "-"): text for name, text in more.items()}
        url = f"http://127.0.0.1:{self.port}/v1/batches"
        return httpx.post(url, content=body, headers=headers, timeout=60, trust_env=False)

    def peak(self) -> int:
        """Return the peak memory of the process in bytes."""
        status = Path("/proc", str(self.process.pid), "status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def takes_a_batch(self) -> bool:
        row = {"timestamp": time.time_ns(), "machine_id": "node-1", "gpu_serial": "S1"}
        return self.post(json.dumps({"readings": [row]}).encode()).status_code == 200

    def lands_a_batch(self) -> None:
        """Wait for the first records, whose writing takes memory unrelated to requests."""
        assert self.takes_a_batch()
        deadline = time.monotonic() + 60
        while not list(self.out.glob("date=*/*.parquet")):
            assert time.monotonic() < deadline, "no records after a minute"
            time.sleep(0.05)  # the publish interval; there is no notification


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    out = tmp_path_factory.mktemp("bounds") / "records"
    (out / "_inbox").mkdir(parents=True)
    (out / "_inbox" / HALF).write_bytes(b"half")
    command = [sys.executable, "-c", SERVE, str(out), str(DEADLINE)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert "listening on http://127.0.0.1:" in line
            threading.Thread(target=process.stderr.read, daemon=True).start()
            running = Running(process, int(line.rpartition(":")[2]), out)
            running.lands_a_batch()
            yield running
        finally:
            process.terminate()


def test_stale_inbox_files_are_removed_at_start(collector: Running) -> None:
    assert collector.takes_a_batch()
    assert not (collector.out / "_inbox" / HALF).exists()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nHost: c\r\n" + b"X-Line: 1\r\n" * 1000,
        b"GET /health HTTP/1.1\r\nHost: c\r\nX-Line: " + b"x" * 10_000,
        b"GET /" + b"x" * 10_000,
    ],
)
def test_endless_headers_are_cut_off(collector: Running, head: bytes) -> None:
    """An earlier version read 103 MiB of them and took 1.4 GiB."""
    before, sent, refused = collector.peak(), 0, collector.metric(REFUSED.format(431))
    more = head.splitlines(keepends=True)[-1] * 10
    with collector.connect() as connection, contextlib.suppress(OSError):
        connection.sendall(head)
        while sent < 100 * MIB:
            connection.sendall(more)
            sent += len(more)
    assert sent < 10 * MIB  # size of both socket buffers
    assert collector.peak() < before + 20 * MIB
    if b"\r\n" in head:  # in the third, the first line itself is endless
        assert collector.metric(REFUSED.format(431)) == refused + 1
    assert collector.takes_a_batch()


def test_long_header_is_answered_with_431(collector: Running) -> None:
    before = collector.metric(REFUSED.format(431))
    with collector.connect() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: c\r\nX-Line: " + b"x" * 17_000)
        assert connection.recv(1000).startswith(b"HTTP/1.1 431 ")
    assert collector.metric(REFUSED.format(431)) == before + 1


def test_half_open_requests_time_out(collector: Running) -> None:
    """In an earlier version 256 of them blocked agents for 100 s."""
    parts = [
        b"",
        b"POST /v1/ba",
        POST,
        POST + b"Content-Length: 100000\r\n\r\n",
        POST + b"Content-Length: 100000\r\n\r\n{",
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
    ]
    before = collector.metric(REFUSED.format(408))
    with contextlib.ExitStack() as stack:
        half = [stack.enter_context(collector.connect()) for _ in range(256)]
        for number, connection in enumerate(half):
            connection.sendall(parts[number % len(parts)])
        assert collector.takes_a_batch()
        for connection in half:  # each ends before its socket times out
            while connection.recv(1000):
                pass
    assert collector.takes_a_batch()
    assert collector.metric(REFUSED.format(408)) >= before + 200


@pytest.mark.parametrize(
    "body",
    [
        b'{"readings": [' + b'{"timestamp":1},' * 500_000 + b'{"timestamp":1}]}',
        b'{"readings": [' + b"[]," * 2_700_000 + b"[]]}",
    ],
    ids=["rows", "lists"],
)
def test_small_bombs_use_bounded_memory(collector: Running, body: bytes) -> None:
    """An earlier version took 2.8 GiB."""
    packed, before = gzip.compress(body, 9), collector.peak()
    assert len(packed) < 40_000
    threads = [
        threading.Thread(target=collector.post, args=(packed,), kwargs={"Content_Encoding": "gzip"})
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert collector.peak() < before + 400 * MIB
    assert collector.takes_a_batch()


def test_metrics_report_landing_age(collector: Running) -> None:
    assert collector.takes_a_batch()
    assert collector.metric("forewarn_collector_landing_age_seconds") < 60
    assert collector.metric("forewarn_collector_inbox_age_seconds") < 60
    assert collector.metric("forewarn_collector_quarantined_files") == 0
    health = httpx.get(f"http://127.0.0.1:{collector.port}/health", trust_env=False, timeout=60)
    assert health.text == "ok\n"
