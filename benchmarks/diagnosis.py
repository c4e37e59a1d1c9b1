"""Time and memory of `forewarn diagnose run` on flight recorder dumps.

    python benchmarks/diagnosis.py [--short]

1,024 ranks with 2,000 entries each: 1 GB of JSON, and the same pickled; `--short` uses 64 ranks.
One rank has stopped. Measured from outside the process, reading included, and compared with
`json.loads` of the same files in as many processes. CPU seconds are printed as well, because other
load on the machine hardly affects them.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from forewarn.features.time_units import SECOND

ENTRIES, WIDTH = 2000, 8  # per dump; ranks per tensor group
BEGIN = 1_795_296_000 * SECOND
COMMAND = "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main())"
STOPPED = 5


def entry(rank: int, number: int, is_open: bool) -> dict[str, Any]:
    """Return an entry: each step reduces once in the tensor group and once in the data group."""
    in_data = number % 2 == 1
    group = f"{10_000 + rank % WIDTH}" if in_data else f"{rank // WIDTH}"
    begin = BEGIN + number * 5_000_000 + rank
    return {
        "record_id": 100_000 + number,
        "pg_id": 2 if in_data else 1,
        "process_group": (group, "dp" if in_data else "tp"),
        "thread_name": "pt_main_thread",
        "thread_id": "140228824701824",
        "collective_seq_id": 50_000 + number // 2,
        "p2p_seq_id": 0,
        "op_id": 50_000 + number // 2,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": begin,
        "input_sizes": [[4096, 1024]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[4096, 1024]],
        "output_dtypes": ["BFloat16"],
        "state": "started" if is_open else "completed",
        "time_discovered_started_ns": begin + 100_000,
        "time_discovered_completed_ns": None if is_open else begin + 900_000,
        "retired": not is_open,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def dump(rank: int) -> dict[str, Any]:
    """Return the dump of a rank; one rank has stopped three operations before the others."""
    last = ENTRIES - 3 if rank == STOPPED else ENTRIES - rank % 2
    entries = [
        entry(rank, number, number == last - 1 and rank != STOPPED) for number in range(last)
    ]
    return {"version": "2.10", "comm_lib_version": "2.26.2", "pg_config": {}, "entries": entries}


def write_job(job: Path, ranks: int, form: str) -> int:
    """Write all dumps; return their size in bytes."""
    flight, size = job / "flight", 0
    flight.mkdir(parents=True)
    for rank in range(ranks):
        value = dump(rank)
        text = json.dumps(value).encode() if form == "json" else pickle.dumps(value, protocol=2)
        (flight / f"trace_{rank}.{form}").write_bytes(text)
        size += len(text)
    rows = [f"{rank},m{rank // 8},{rank % WIDTH},0,{rank // WIDTH}\n" for rank in range(ranks)]
    (job / "ranks.csv").write_text("rank,machine,tp,pp,dp\n" + "".join(rows))
    return size


def timed(command: Sequence[str]) -> tuple[float, float, float, str]:
    """Return wall seconds, CPU seconds and total peak MiB of all processes, and the output."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, tree_memory(process.pid))
            time.sleep(0.05)
        output = process.stdout.read() if process.stdout else ""
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cpu, peak / 2**20, output


def tree_memory(pid: int) -> float:
    """Return the proportional memory of a process and its children, bytes."""
    total = 0.0
    for number in (pid, *children(pid)):
        try:
            text = Path(f"/proc/{number}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(
            (float(line.split()[1]) * 1024 for line in text.splitlines() if line[:4] == "Pss:"), 0.0
        )
    return total


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(number) for number in text.split()]


def load(path: Path) -> int:
    """Read a dump as plain JSON."""
    return len(json.loads(path.read_bytes())["entries"])


def plain_json(job: Path) -> tuple[float, float]:
    """Return wall and CPU seconds of `json.loads` over all dumps, in as many processes."""
    files = sorted((job / "flight").iterdir())
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(load, files, chunksize=8))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - started, cpu


def measure(folder: Path, ranks: int, form: str) -> None:
    """Write a job, diagnose it, and print the cost."""
    job = folder / form
    size = write_job(job, ranks, form)
    at = "2026-11-22T12:00:00Z"
    command = [sys.executable, "-c", COMMAND, "diagnose", "run", "--job", str(job), "--at", at]
    wall, cpu, peak, output = timed([*command, "--json"])
    verdict = json.loads(output)
    print(
        f"{form}: {ranks} ranks x {ENTRIES} entries, {size / 1e6:.0f} MB: {wall:.1f} s, CPU "
        f"{cpu:.1f} s, peak {peak:.0f} MiB, kind {verdict['kind']}, rank {verdict['rank']} "
        f"(true: {STOPPED})"
    )
    if verdict["rank"] != STOPPED:
        raise SystemExit(f"rank {STOPPED} stopped, the verdict is rank {verdict['rank']}")
    if form == "json":
        plain, plain_cpu = plain_json(job)
        print(
            f"  json.loads in as many processes: {plain:.1f} s, CPU {plain_cpu:.1f} s; ours takes "
            f"{wall / plain:.2f} x the time, {cpu / plain_cpu:.2f} x the CPU"
        )


def main() -> None:
    """Measure both forms."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="64 ranks")
    ranks = 64 if parser.parse_args().short else 1024
    with tempfile.TemporaryDirectory() as folder:
        for form in ("json", "pickle"):
            measure(Path(folder), ranks, form)


if __name__ == "__main__":
    main()
