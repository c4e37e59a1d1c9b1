"""A collection round of a fleet through one collector, compared with writing the same Parquet file.

    python benchmarks/collection.py [--short]

2,500 hosts of 8 GPUs send their batches like agents do: compressed JSON, one request per host, over
a few connections. A round ends when its records are published. Prints medians over the rounds of an
hour: records a second, response latency (a batch is on disk before the response), the time to write
the same rows to one file, and the collector's memory.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.telemetry.telemetry_tables import READINGS, build_table
from forewarn.features.time_units import MINUTE

TICK = 10 * MINUTE
START = time.time_ns() // (6 * TICK) * 6 * TICK - 24 * 6 * TICK  # an hour of yesterday
PER_HOST = 8
SERVE = (
    "from pathlib import Path; import sys; "
    "from forewarn.pipelines.collector.collector_service import run_collector; "
    "from forewarn.pipelines.config.settings import Settings; "
    "s = Settings.model_validate({'collector': {'publish_every': '200ms'}}); "
    "run_collector(s, Path(sys.argv[1]), cmdb=Path(sys.argv[2]), repairs=None, "
    "tokens='site=secret', port=int(sys.argv[3]))"
)


def _rows(host: int, tick: int) -> list[dict[str, Any]]:
    gauges = {"temperature_gpu": 40.0 + host % 30, "power_draw": 350.5 + tick, "memory_used": 8e4}
    gauges |= {"utilization_gpu": 97.0, "utilization_memory": 40.0, "clock_sm": 1980.0}
    counters = {"ecc_corrected": tick, "ecc_uncorrected": 0, "rows_remapped": 0, "pcie_replays": 3}
    return [
        {
            "timestamp": START + tick * TICK,
            "machine_id": f"node-{host:05}",
            "gpu_serial": f"165{host:07}{gpu}",
            "gpu_uuid": f"GPU-{host:08x}-0000-0000-0000-{gpu:012x}",
            "pci": f"0000:{gpu:02x}:00",
            "slot": gpu,
            "gpu_type": "NVIDIA H100 80GB HBM3",
            "driver_version": "550.54.15",
            "pcie_link_width": 16,
            "boot_time": START - TICK,
            "host_load": 12.5,
            "log_read": True,
            **gauges,
            **counters,
        }
        for gpu in range(PER_HOST)
    ]


def _request(host: int, tick: int) -> bytes:
    body = gzip.compress(json.dumps({"readings": _rows(host, tick), "events": []}).encode(), 5)
    head = (
        "POST /v1/batches HTTP/1.1\r\nHost: collector\r\nAuthorization: Bearer secret\r\n"
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _send(port: int, requests: list[bytes], connections: int) -> list[float]:
    """Send all requests over some connections; return the seconds to each response."""
    waiting, seconds = list(reversed(requests)), list[float]()

    async def send() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            started = time.perf_counter()
            writer.write(waiting.pop())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            seconds.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(send() for _ in range(connections)))
    return seconds


def _round(out: Path, port: int, hosts: int, tick: int) -> dict[str, float]:
    """Send one round and wait until its records are published."""
    requests = [_request(host, tick) for host in range(hosts)]
    started = time.perf_counter()
    latency = asyncio.run(_send(port, requests, connections=16))
    taken = time.perf_counter() - started
    while _records(out, tick) < hosts * PER_HOST:
        time.sleep(0.02)
    landed = time.perf_counter() - started
    cuts = statistics.quantiles(latency, n=100)
    return {"taken": taken, "landed": landed, "p50": cuts[49], "p99": cuts[98]}


def _records(out: Path, tick: int) -> int:
    """Return the number of records with a timestamp."""
    path = max(out.glob("date=*/collected-*.parquet"), default=None)
    if path is None:
        return 0
    with pq.ParquetFile(path) as file:  # the collector may replace the file
        times = file.read(columns=["timestamp"])["timestamp"]
    return int((times.cast(pa.int64()).to_numpy() == START + tick * TICK).sum())


def _peer(folder: Path, hosts: int) -> float:
    """Return the seconds to write the rows of one round, as a table, to one Parquet file."""
    table = build_table([row for host in range(hosts) for row in _rows(host, 0)], READINGS)
    started = time.perf_counter()
    with (folder / "peer.parquet").open("wb") as file:
        pq.write_table(table, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - started


def _serve(out: Path, cmdb: Path) -> tuple[subprocess.Popen[bytes], int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(out), str(cmdb), str(port)])
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except OSError:
            time.sleep(0.1)


def _peak_mib(process: subprocess.Popen[bytes]) -> float:
    status = Path("/proc", str(process.pid), "status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Start a collector, send the rounds and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="100 hosts, two rounds")
    args = parser.parse_args()
    hosts, rounds = (100, 2) if args.short else (2500, 6)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cmdb = folder / "cmdb.csv"
        lines = (f"165{h:07}{g},rack-{h // 8},dc-1" for h in range(hosts) for g in range(PER_HOST))
        cmdb.write_text("\n".join(["gpu_serial,rack,data_center", *lines]) + "\n")
        process, port = _serve(folder / "records", cmdb)
        try:
            measured = [_round(folder / "records", port, hosts, tick) for tick in range(rounds)]
            peak = _peak_mib(process)
        finally:
            process.terminate()
            process.wait()
        peer = statistics.median(_peer(folder, hosts) for _ in range(5))
    median = {key: statistics.median(figures[key] for figures in measured) for key in measured[0]}
    records = hosts * PER_HOST
    print(f"{records} GPUs on {hosts} hosts, median of {rounds} rounds")
    print(
        f"taken, safe on disk   {median['taken']:7.2f} s, {records / median['taken']:8.0f} rows/s"
    )
    print(
        f"records in place      {median['landed']:7.2f} s, {records / median['landed']:8.0f} rows/s"
    )
    print(
        f"latency of an answer  p50 {median['p50'] * 1e3:.1f} ms, p99 {median['p99'] * 1e3:.1f} ms"
    )
    print(f"peer, one Parquet file{peer:7.3f} s, ratio {median['landed'] / peer:.0f}")
    print(f"peak memory of the collector {peak:.0f} MiB")


if __name__ == "__main__":
    main()
