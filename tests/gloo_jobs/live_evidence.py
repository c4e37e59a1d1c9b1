"""Evidence of a running job: dumps of its worker servers, stacks, and process states."""

from __future__ import annotations

import http.client
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["KernelSamples", "pids", "take_dumps", "take_stacks"]

PATIENCE = 3.0  # seconds; a stopped process never answers
LOOK = 10.0  # seconds for py-spy on a busy machine


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(self._path))


def pids(folder: Path) -> dict[int, int]:
    """Return the pids of the ranks, from their pid files."""
    files = sorted(folder.glob("*.pid"))
    return {int(file.stem): int(text) for file in files if (text := file.read_text())}


def take_dumps(sockets: Path, flight: Path) -> None:
    """Save the flight recorder of each worker server that answers."""
    flight.mkdir()

    def take(path: Path) -> None:
        with (
            closing(_SocketConnection(path)) as connection,
            suppress(OSError, http.client.HTTPException),
        ):
            connection.request("POST", "/handler/fr_trace_json")
            answer = connection.getresponse()
            dump = answer.read()
            if answer.status == 200:
                (flight / f"dump_{path.stem}.json").write_bytes(dump)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(take, sockets.glob("*.sock")))


def take_stacks(py_spy: Path, processes: dict[int, int], stacks: Path) -> None:
    """Take the stacks of all ranks without pausing them, which would block in state D."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    folder = stacks / now
    folder.mkdir(parents=True)
    for rank, pid in processes.items():
        command = [str(py_spy), "dump", "--nonblocking", "--json", "--pid", str(pid)]
        try:
            look = subprocess.run(command, capture_output=True, timeout=LOOK, check=True)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
            continue
        (folder / f"{rank}.json").write_bytes(look.stdout)


class KernelSamples:
    """Samples of /proc for the ranks, once a second, as the part `kernel`."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._over = folder, threading.Event()
        self._rows: list[tuple[int, int, str, float]] = []
        self._waits: dict[int, int] = {}
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        while not self._over.wait(1.0):
            for rank, pid in pids(self._folder).items():
                try:
                    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    waited = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
                except (OSError, IndexError):
                    continue
                before = self._waits.get(rank)
                self._waits[rank] = waited
                if before is not None:
                    row = (time.time_ns(), rank, stat[0], (waited - before) / 1e6)
                    self._rows.append(row)

    def write(self, path: Path) -> None:
        """Stop sampling and write the table."""
        self._over.set()
        self._thread.join()
        self.save(path)

    def save(self, path: Path) -> None:
        """Write the samples so far; a reader sees the old table or the new one."""
        path.parent.mkdir(exist_ok=True)
        columns: Sequence[Sequence[object]] = list(zip(*self._rows, strict=True)) or [[]] * 4
        kinds = (pa.timestamp("ns", tz="UTC"), pa.int32(), pa.string(), pa.float64())
        names = ("timestamp", "rank", "state", "runq_wait_ms")
        arrays = [pa.array(c, type=kind) for c, kind in zip(columns, kinds, strict=True)]
        pq.write_table(pa.table(arrays, names=names), path.with_suffix(".part"))
        path.with_suffix(".part").replace(path)
