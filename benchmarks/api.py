"""Load test of the incident API: 50 readers and one writer on a large ledger.

    python benchmarks/api.py [--short] [--ledger URL]

The ledger holds a million findings of 20,000 GPUs (with --short 30,000); nearly all incidents are
closed. Readers request what a console shows: open incidents, actions, the switch, one incident, and
sometimes the score, older incidents, or those of one machine. The writer posts 1,000 findings at a
time, most of them repeats. In the first phase each client waits a second between requests, like a
console that refreshes itself; in the second none waits, which gives the maximum throughput.
Prints median, p95 and responses a second for each request, and the CPU seconds of the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert, select

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import incident_states, incidents
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.serving.tokens import token_digest
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.step import DrainMode, Step

GPUS, PER_MACHINE, READERS, OPEN = 20_000, 8, 50, 1_000
NOW = Nanoseconds(time.time_ns())
TOKENS = f"reader:see={token_digest('see').hex()},writer:report={token_digest('report').hex()}"
SERVE = """
import os, sys, time
from functools import partial
from pathlib import Path
from forewarn.pipelines.incidents.api.access_control import parse_access
from forewarn.pipelines.incidents.loop.alert_cache import AlertCache
from forewarn.pipelines.incidents.api.app import serve_api
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.ledger.kill_switch import KillSwitch
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.ledger_score import score_ledger
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.serving.listener import Listener
Path(sys.argv[2], "my.toml").touch()
ledger = Ledger.open(sys.argv[1])
site = ResponseSite.from_config(Path(sys.argv[2], "my.toml"))
score = partial(score_ledger, site, ledger, cache=AlertCache(ledger))
switch = KillSwitch(Path(sys.argv[2], "stop"), ledger)
access = parse_access(os.environ["FOREWARN_RESPOND_TOKENS"])
context = ApiContext(ledger, access, switch, lambda: score(now=time.time_ns()))
serve_api(context, Listener("respond", "127.0.0.1", int(sys.argv[3])))
"""


def _finding(number: int, day: int) -> Finding:
    gpu = number % GPUS
    at = Nanoseconds(NOW - day * DAY - HOUR)
    return Finding(
        source="records",
        id=f"xid-{number}",
        kind=FindingKind.XID,
        cause="xid 79",
        machine=f"node-{gpu // PER_MACHINE:05}",
        gpu_serial=f"165{gpu:010}",
        at=at,
        valid_until=Nanoseconds(at + DAY),
        severity=Severity.ERROR,
        evidence={"xid": 79, "message": f"GPU {gpu % PER_MACHINE} has fallen off the bus"},
    )


def _fill(ledger: Ledger, findings: int) -> None:
    """Write a year of data: rounds of findings about some GPUs, whose incidents are then closed."""
    rounds = range(0, findings, 10_000)
    for number in rounds:
        day = 1 + 360 * (len(rounds) - 1 - number // 10_000) // len(rounds)
        # Ten findings for each of a thousand GPUs.
        gpus = random.Random(number).sample(range(GPUS), 1_000)
        batch = [
            _finding(number * 10 * GPUS + n * GPUS + gpu, day) for n in range(10) for gpu in gpus
        ]
        ledger.record_findings(batch, now=Nanoseconds(NOW - day * DAY))
        if number != rounds[-1]:
            _end_all(ledger, Nanoseconds(NOW - day * DAY + HOUR))
    _decide_and_act(ledger)


def _end_all(ledger: Ledger, now: Nanoseconds) -> None:
    """Close all open incidents in one statement; one by one would take most of the time."""
    ended = {"state": "closed", "at": now, "who": "forewarn", "why": "over"}
    ended |= {"policy_version": "abc", "model_version": ""}
    with ledger.database.writing() as connection:
        over = select(incident_states.c.incident)
        numbers = connection.scalars(
            select(incidents.c.id).where(incidents.c.id.not_in(over))
        ).all()
        rows = [{"incident": number, **ended} for number in numbers]
        connection.execute(insert(incident_states), rows)


def _decide_and_act(ledger: Ledger) -> None:
    for incident in ledger.open_incidents():
        decision = Decision(
            incident=incident.id,
            at=NOW,
            ruling=Ruling.ACT,
            step=Step.DRAIN,
            mode=DrainMode.FINISH,
            severity=Severity.ERROR,
            reason="xid 79 (GPU has fallen off the bus): drain",
            until=None,
            valid_until=Nanoseconds(NOW + DAY),
            findings=tuple(f.key for f in incident.findings),
            policy_version="abc",
        )
        ledger.decide(decision)
        if incident.id % 20 == 0:
            ledger.act(_action(incident.id, incident.machine), lambda _: None)


def _action(incident: int, machine: str) -> Action:
    names = {"incident": incident, "machine": machine, "pool": "gpu", "rack": "r1", "job": None}
    times = {"at": NOW, "valid_until": Nanoseconds(NOW + DAY), "changed_at": NOW}
    return Action(id=0, cause="xid 79", step=Step.DRAIN, mode=DrainMode.FINISH, **names, **times)  # type: ignore[arg-type]


# --- the readers and the writer -------------------------------------------------------------------


class Connection:
    """A persistent connection, like that of a browser."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token

    async def open(self) -> Connection:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request and return the response; an error response ends the benchmark."""
        head = f"{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {self._token}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
        length = next(line for line in lines if line.startswith("content-length:"))
        answer = await self._reader.readexactly(int(length.partition(":")[2]))
        if " 200 " not in lines[0] and " 202 " not in lines[0]:
            raise SystemExit(f"{method} {path}: {lines[0]} {answer!r}")
        return answer


def _paths(newest: int, seed: int) -> Iterator[str]:
    draw = random.Random(seed)
    while True:
        for _ in range(4):  # what a console requests repeatedly
            yield "/v1/incidents?state=open"
            yield "/v1/actions"
            yield "/v1/switch"
            yield f"/v1/incidents/{draw.randrange(1, newest)}"
        yield f"/v1/incidents?before={draw.randrange(200, newest)}"
        yield "/v1/score"
        yield f"/v1/incidents?machine=node-{draw.randrange(GPUS // PER_MACHINE):05}"


@dataclass(frozen=True)
class Load:
    """When the load ends, and the pause between two requests, in seconds."""

    port: int
    newest: int
    until: float
    pause: float


async def _read(load: Load, seed: int, seconds: dict[str, list[float]]) -> None:
    connection = await Connection(load.port, "see").open()
    await asyncio.sleep(load.pause * seed / READERS)
    for path in _paths(load.newest, seed):
        if time.monotonic() > load.until:
            return
        await asyncio.sleep(load.pause)
        begun = time.perf_counter()
        await connection.ask("GET", path)
        seconds[_kind(path)].append(time.perf_counter() - begun)


def _kind(path: str) -> str:
    if path.startswith("/v1/incidents/"):
        return "/v1/incidents/{number}"
    return path.partition("=")[0]


async def _write(load: Load, seconds: dict[str, list[float]]) -> None:
    connection = await Connection(load.port, "report").open()
    round_number = 0
    while time.monotonic() < load.until:
        await asyncio.sleep(load.pause)
        body = json.dumps([_posted(n, round_number) for n in range(1000)]).encode()
        begun = time.perf_counter()
        await connection.ask("POST", "/v1/findings", body)
        seconds["POST /v1/findings (1,000)"].append(time.perf_counter() - begun)
        round_number += 1


def _posted(number: int, round_number: int) -> dict[str, object]:
    """Return a finding; one in a hundred is new each time."""
    name = f"{number}-{round_number}" if number % 100 == 0 else str(number)
    return {
        "id": name,
        "source": "nhc",
        "kind": "check",
        "machine": f"node-{number:05}",
        "at": format_iso(NOW),
        "valid_until": format_iso(NOW + DAY),
        "severity": "error",
        "evidence": {"check": "nvlink", "links": 17},
    }


async def _await_score(port: int) -> None:
    """Request the score until it is there: the first request begins its computation."""
    connection = await Connection(port, "see").open()
    while b"is being computed" in await connection.ask("GET", "/v1/score"):
        await asyncio.sleep(0.1)


async def _measure(load: Load) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = defaultdict(list)
    readers = [_read(load, seed, seconds) for seed in range(READERS)]
    await asyncio.gather(_write(load, seconds), *readers)
    return seconds


def _print(seconds: dict[str, list[float]], length: float, cpu: float) -> None:
    for kind, values in sorted(seconds.items()):
        _print_line(kind, values, length)
    reads = [value for kind, values in seconds.items() if "POST" not in kind for value in values]
    _print_line("all reads", reads, length)
    print(f"server: {cpu:.1f} CPU seconds in {length:.0f} s")


def _print_line(kind: str, values: Sequence[float], length: float) -> None:
    p95 = statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]
    print(
        f"{kind:28} median {1e3 * statistics.median(values):6.0f} ms  p95 {1e3 * p95:6.0f} ms  "
        f"{len(values) / length:6.1f} a second"
    )


def _cpu_seconds(process: int) -> float:
    fields = Path("/proc", str(process), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _start(url: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    environment = os.environ | {"FOREWARN_RESPOND_TOKENS": TOKENS}
    command = [sys.executable, "-c", SERVE, url, str(folder), str(port)]
    process = subprocess.Popen(command, env=environment)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return process, port
        except OSError:
            time.sleep(0.1)


def main() -> None:
    """Fill a ledger, serve it, send requests, print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="30,000 findings, 3 s each")
    parser.add_argument(
        "--ledger", default="", help="database URL; by default SQLite in a new folder"
    )
    options = parser.parse_args()
    findings, length = (30_000, 3.0) if options.short else (1_000_000, 30.0)
    with tempfile.TemporaryDirectory() as folder:
        url = options.ledger or f"sqlite:///{folder}/ledger.db"
        with Ledger.open(url) as ledger:
            begun = time.process_time()
            _fill(ledger, findings)
            newest = ledger.incidents(limit=1)[0].id
        print(
            f"{findings:,} findings, {newest:,} incidents: {time.process_time() - begun:.0f} CPU s"
        )
        process, port = _start(url, Path(folder))
        try:
            asyncio.run(_await_score(port))
            for pause in (1.0, 0.0):
                before, until = _cpu_seconds(process.pid), time.monotonic() + length
                seconds = asyncio.run(_measure(Load(port, newest, until, pause)))
                print(f"--- {READERS} readers and a writer, each pausing {pause:g} s")
                _print(seconds, length, _cpu_seconds(process.pid) - before)
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
