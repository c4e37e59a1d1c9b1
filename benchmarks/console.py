"""Load test of the console: readers of its pages and one writer, on a large ledger and list.

    .venv/bin/python -m benchmarks.console [--short] [--readers 1,5,10,25,50] [--plot PNG]
        [--seconds S] [--folder FOLDER]

The ledger is that of `benchmarks/api.py`: a million findings of 20,000 GPUs (with --short 30,000);
the list has 20,000 GPUs. Each reader requests all pages in turn, and between them a route of
FastAPI that returns nothing, so that both see the same load. No reader waits between requests, and
none has a cache. Prints the p95 of each page, its ratio to that of the empty route, and the bytes
of the compressed page. `--plot` draws the ratios over the readers. `--folder` keeps the ledger and
the list there, and uses them again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
from benchmarks.api import GPUS, NOW, PER_MACHINE, TOKENS, Load, _fill, _write
from matplotlib.figure import Figure

from forewarn.features.time_units import DAY, HOUR
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.rendering.svg_figures import figure_style
from forewarn.pipelines.runtime.timestamps import format_iso

EMPTY = "/empty"
PAGES = {
    "today": "/",
    "at-risk list": "/list/latest",
    "GPU": "/gpu/{gpu}",
    "machine": "/machine/{machine}",
    "incidents": "/incidents?state=open",
    "incident": "/incident/{incident}",
    "fleet": "/fleet",
    "score": "/score",
    "models": "/models",
}
# findings, seconds for each number of readers, numbers of readers
FULL = (1_000_000, 20.0, "1,5,10,25,50")
SHORT = (30_000, 3.0, "1,10")
SERVE = """
import os, sys, time
from pathlib import Path
from functools import partial
from forewarn.pipelines.console.console_app import make_console
from forewarn.pipelines.console.console_site import ConsoleSite
from forewarn.pipelines.console.sessions import RateLimit
from forewarn.pipelines.incidents.api.access_control import parse_access
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.api.app import serve_api
from forewarn.pipelines.incidents.ledger.kill_switch import KillSwitch
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.alert_cache import AlertCache
from forewarn.pipelines.incidents.loop.ledger_score import score_ledger
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.serving.listener import Listener
from forewarn.pipelines.storage.evidence.daily_lists import DailyLists
folder = Path(sys.argv[2])
(folder / "my.toml").touch()
ledger = Ledger.open(sys.argv[1])
site = ResponseSite.from_config(folder / "my.toml")
score = partial(score_ledger, site, ledger, cache=AlertCache(ledger))
access = parse_access(os.environ["FOREWARN_RESPOND_TOKENS"])
parts = ledger, access, KillSwitch(folder / "stop", ledger), lambda: score(now=time.time_ns())
context = ApiContext(*parts, lists=DailyLists(folder / "lists"))
console = ConsoleSite(context, reads=RateLimit(10**9, 1))
app = make_console(console)

async def empty():
    return {}

app.add_api_route("/empty", empty)
serve_api(context, Listener("respond", "127.0.0.1", int(sys.argv[3])), app=app)
"""


def _write_list(folder: Path) -> None:
    """Write a list of 20,000 GPUs as `forewarn score` does."""
    day = folder / "lists" / f"date={format_iso(NOW)[:10]}"
    day.mkdir(parents=True)
    number = np.random.default_rng(0).permutation(GPUS)
    serials = [f"165{gpu:010}" for gpu in number.tolist()]
    rank = np.arange(1, GPUS + 1)
    table = pd.DataFrame(
        {
            "rank": rank,
            "gpu_serial": serials,
            "machine_id": [f"node-{gpu // PER_MACHINE:05}" for gpu in number.tolist()],
            "slot": [str(gpu % PER_MACHINE) for gpu in number.tolist()],
            "probability": 0.5 / rank,
            "flagged": rank <= 60,
            "reasons": np.where(rank <= 60, "corrected memory errors 41 in 7 days | Xid 63", ""),
            "window_end": pd.Timestamp(NOW - HOUR, tz="UTC"),
            "valid_until": pd.Timestamp(NOW + DAY, tz="UTC"),
        }
    )
    table.to_parquet(day / "at_risk.parquet", index=False)
    channel = {"name": "t", "title": "temperature", "unit": "°C", "counted": False}
    channels = [channel | {"levels": [60.5 + n for n in range(56)]} for _ in range(11)]
    start = (NOW - 7 * DAY) // 10**9
    telemetry = json.dumps({"start": start, "step": 10800, "channels": channels})
    extracts = {
        "gpu_serial": serials,
        "rack": [f"r{gpu // 64:04}" for gpu in number.tolist()],
        "events": ["[]"] * GPUS,
        "telemetry": [telemetry if place <= 200 else "" for place in rank.tolist()],
    }
    pd.DataFrame(extracts).to_parquet(day / "gpu_extracts.parquet", index=False)
    (day / "summary.json").write_text(json.dumps({"at": format_iso(NOW)}))


def _pages(newest: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield name and address of the pages that a reader opens."""
    draw = random.Random(seed)
    while True:
        gpu = draw.randrange(GPUS)
        values = {"gpu": f"165{gpu:010}", "machine": f"node-{gpu // PER_MACHINE:05}"}
        for name, path in PAGES.items():
            yield name, path.format(incident=draw.randrange(1, newest), **values)
            yield "empty route", EMPTY


async def _read(
    client: httpx.AsyncClient, load: Load, seed: int, seen: dict[str, list[tuple[float, int]]]
) -> None:
    for name, path in _pages(load.newest, seed):
        # A slow machine may need the whole time for the first round.
        if time.monotonic() > load.until and len(seen) == len(PAGES) + 1:
            return
        begun = time.perf_counter()
        async with client.stream("GET", path) as answer:
            size = sum([len(part) async for part in answer.aiter_raw()])
        if answer.status_code != 200:
            raise SystemExit(f"{path}: {answer.status_code}")
        seen[name].append((time.perf_counter() - begun, size))


async def _measure(load: Load, readers: int) -> dict[str, list[tuple[float, int]]]:
    seen: dict[str, list[tuple[float, int]]] = defaultdict(list)
    address, limits = f"http://127.0.0.1:{load.port}", httpx.Limits(max_connections=readers)
    options = {"base_url": address, "limits": limits, "timeout": 60, "trust_env": False}
    async with httpx.AsyncClient(**options) as client:  # type: ignore[arg-type]
        await client.post("/sign-in", data={"token": "see"})
        tasks = [_read(client, load, seed, seen) for seed in range(readers)]
        await asyncio.gather(_write(load, defaultdict(list)), *tasks)
    return seen


def _print(seen: dict[str, list[tuple[float, int]]], readers: int) -> dict[str, float]:
    """Print the results, and return the ratio of each page to the empty route."""
    p95 = {name: _p95([seconds for seconds, _ in values]) for name, values in seen.items()}
    empty = p95.pop("empty route")
    print(f"--- {readers} readers and a writer: empty route p95 {1e3 * empty:.0f} ms")
    for name, seconds in p95.items():
        sizes = [size for _, size in seen[name]]
        median = statistics.median([s for s, _ in seen[name]])
        print(
            f"{name:14} median {1e3 * median:6.0f} ms  p95 {1e3 * seconds:6.0f} ms  "
            f"{seconds / empty:5.1f} x  {max(sizes) / 1e3:6.1f} kB  {len(sizes):6} requests"
        )
    return {name: seconds / empty for name, seconds in p95.items()}


@figure_style()
def _plot(ratios: dict[int, dict[str, float]], path: Path) -> None:
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    readers = sorted(ratios)
    for name in ratios[readers[0]]:
        axes.plot(readers, [ratios[n][name] for n in readers], marker="o", label=name)
    axes.axhline(10, color="black", linestyle="--", linewidth=1)
    axes.set(xscale="log", xticks=readers, xticklabels=readers, ylim=(0, None))
    axes.minorticks_off()
    axes.set_xlabel("readers without a pause, and one writer")
    axes.set_ylabel("p95 as a multiple of the empty route")
    figure.legend(loc="outside right upper")
    figure.savefig(path, dpi=150)


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def main() -> None:
    """Fill a ledger and a list, serve them, open pages, print the results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="30,000 findings, 3 s each")
    parser.add_argument("--seconds", type=float, help="for each number of readers; default 20")
    parser.add_argument("--readers", help="default 1,5,10,25,50; with --short 1,10")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    findings, length, readers = SHORT if options.short else FULL
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        url, is_new = f"sqlite:///{folder}/ledger.db", not (folder / "ledger.db").exists()
        if is_new:
            _write_list(folder)
        with Ledger.open(url) as ledger:
            if is_new:
                _fill(ledger, findings)
            newest = ledger.incidents(limit=1)[0].id
        print(f"{findings:,} findings, {newest:,} incidents, {GPUS:,} GPUs")
        environment = os.environ | {"FOREWARN_RESPOND_TOKENS": TOKENS}
        process, port = _start(url, folder, environment)
        try:
            print(f"first score: {_first_score(port):.1f} s, while its page says so")
            ratios = {}
            for count in map(int, (options.readers or readers).split(",")):
                load = Load(port, newest, time.monotonic() + (options.seconds or length), 0.0)
                ratios[count] = _print(asyncio.run(_measure(load, count)), count)
            if options.plot:
                _plot(ratios, options.plot)
        finally:
            process.terminate()
            process.wait()


def _first_score(port: int) -> float:
    """Open the page of the score until it is there; return the seconds."""
    begun, address = time.monotonic(), f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        client.post("/sign-in", data={"token": "see"})
        while "is being computed" in client.get("/score").text:
            time.sleep(0.2)
    return time.monotonic() - begun


def _start(
    url: str, folder: Path, environment: dict[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    with httpx.Client(trust_env=False) as client:
        port = random.Random(os.getpid()).randrange(20_000, 30_000)
        command = [sys.executable, "-c", SERVE, url, str(folder), str(port)]
        process = subprocess.Popen(command, env=environment)
        for _ in range(600):
            try:
                client.get(f"http://127.0.0.1:{port}{EMPTY}")
            except httpx.TransportError:
                time.sleep(0.1)
            else:
                return process, port
    raise SystemExit("the server does not answer")


if __name__ == "__main__":
    main()
