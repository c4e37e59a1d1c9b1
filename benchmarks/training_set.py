"""Time of building a training set, compared with pyarrow reading the same columns.

    python benchmarks/training_set.py [--short] [--gpus N --days N --runs N --again N] [--compact]
                                      [--slices N] [--touch GIB]

Prints medians of seconds and of CPU seconds, ratios and the peak memory. A training is a process of
its own, so each side is measured in fresh processes, alternately. It is measured nine more times
(`--again`) in the same process, with memory already touched and libraries loaded, as in a
long-running service. The host of a virtual machine reclaims free memory, and touching it again can
take seconds per GiB: with `--touch` another process touches memory just before each side. pyarrow
reads one file after another and discards it. For compacted records (`--compact`, or `--records`
that are compacted) the set is built slice by slice of GPUs.

The longest default length takes 15 days, and 25 days are read for it: use `--days 26` or more.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from forewarn.features.records.record_table import DAY, FAILURE, MACHINE, SERIAL, SLOT, TIMESTAMP
from forewarn.models.prediction.training_set import UndersampledInstances, build_training_sets
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import Job, open_job
from forewarn.pipelines.runtime.progress import Stages
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.storage.records.compaction_run import DateSpan, compact_records

SIDES = ("read", "build")
KEYS = (SERIAL, TIMESTAMP, FAILURE)
AGAIN = 9


def _build(job: Job, moment: int, *, n_slices: int | None) -> Stages:
    """Build the training set of the longest length as of `moment`, like a DAG task."""
    settings, stages = job.walk_settings, Stages()
    with stages("keys, texts, labels"):
        recipe, first = settings.recipe, moment - settings.reach
        span = settings.longest
        look = recipe.candidate_selector(first, moment, [span])
        fleet = job.store.read_fleet(first, moment, look, n_slices)
    with stages(f"measure and encode, {fleet.n_slices} slices"):
        past, counts = fleet.selection.known(span), fleet.selection.counts[span]
        thinned = UndersampledInstances.from_instances(recipe, fleet, past, counts)
        _, built = next(build_training_sets(recipe, fleet, [thinned]))
    if not 0 < (built.labels == 1).sum() < len(built.labels):
        raise SystemExit("the training set lacks failing or healthy instances")
    return stages


def _read(job: Job, moment: int) -> Stages:
    """Read what a training set needs, file after file, with plain pyarrow.

    Older files need only the key columns, for earlier failures.
    """
    names = (*KEYS, MACHINE, SLOT, *job.store.kinds.names, *job.store.groups)
    first, stages = moment - job.walk_settings.reach, Stages()
    files = [(_midnight(date), path) for date, path in job.store.files()]
    paths = [path for start, path in files if first - DAY < start < moment]
    older = [path for start, path in files if start <= first]
    with stages(f"read {len(paths)} files"):
        for path in paths:
            pq.read_table(path, columns=list(dict.fromkeys(names)))
    with stages(f"read the keys of {len(older)} files"):
        for path in older:
            pq.read_table(path, columns=list(KEYS))
    return stages


def _midnight(date: Any) -> int:
    return int((date.toordinal() - 719_163) * DAY)


def _measure(side: str, records: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run one side repeatedly; return seconds, stages and peak memory of each run."""
    work: Callable[[Job, int], Stages] = _read
    if side == "build":
        work = partial(_build, n_slices=args.slices)
    job = open_job(records, Settings())
    moment = _midnight(job.store.files()[-1][0])
    measured = []
    for _ in range(1 + args.again):
        start, cpu = time.perf_counter(), time.process_time()
        figures = asdict(work(job, moment).figures())
        taken = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
        measured.append(figures | taken)
    return measured


def _in_fresh_process(side: str, records: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    begin = [] if side == "read" else [str(Path(__file__).with_name("as_command.py"))]
    command = [sys.executable, *begin, __file__, "--side", side, "--records", str(records)]
    command += ["--again", str(args.again)]
    command += [] if args.slices is None else ["--slices", str(args.slices)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return list(json.loads(done.stdout))


def _touch(gib: int) -> None:
    """Touch memory, page by page, in a process that ends."""
    touch = f"import numpy; numpy.empty({gib} << 30, dtype=numpy.uint8)[::4096] = 1"
    subprocess.run([sys.executable, "-c", touch], check=True)


def _compare(records: Path, args: argparse.Namespace) -> None:
    """Measure both sides alternately and print medians."""
    measured: dict[str, list[list[dict[str, Any]]]] = {side: [] for side in SIDES}
    for _ in range(args.runs):
        for side in SIDES:
            if args.touch:
                _touch(args.touch)
            measured[side].append(_in_fresh_process(side, records, args))
    phases = [("fresh process", slice(1))] + [("again in it", slice(1, None))] * bool(args.again)
    for what, times in phases:
        each = {side: [once for run in measured[side] for once in run[times]] for side in SIDES}
        for kind in ("seconds", "cpu"):
            read, build = (statistics.median(t[kind] for t in each[side]) for side in SIDES)
            name = "s" if kind == "seconds" else "CPU s"
            print(f"{what:13} pyarrow reads {read:6.3f} {name}, the set is built in ", end="")
            print(f"{build:6.3f} {name}, ratio {build / read:.2f}")
        for number, stage in enumerate(each["build"][0]["stages"]):
            seconds = [once["stages"][number]["seconds"] for once in each["build"]]
            print(f"  {stage['name']:<30} {statistics.median(seconds):8.3f} s")
        peaks = [statistics.median(t["peak_rss_bytes"] for t in each[side]) for side in SIDES]
        print(f"  peak memory {peaks[1] / 2**30:.2f} GiB, of pyarrow {peaks[0] / 2**30:.2f} GiB")


def main() -> None:
    """Simulate a fleet in a temporary folder and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small fleet, once")
    parser.add_argument("--records", type=Path, help="measure these instead of a simulated fleet")
    parser.add_argument("--side", choices=SIDES, help="measure one side in this process, as JSON")
    parser.add_argument("--gpus", type=int, default=800)
    parser.add_argument("--days", type=int, default=45)
    parser.add_argument("--runs", type=int, default=5, help="fresh processes a side")
    parser.add_argument("--again", type=int, default=AGAIN, help="repetitions in each process")
    parser.add_argument("--compact", action="store_true", help="compact the simulated fleet first")
    parser.add_argument("--slices", type=int, help="number of slices (default: automatic)")
    parser.add_argument("--touch", type=int, default=0, help="GiB to touch before each side")
    args = parser.parse_args()
    if args.side:
        print(json.dumps(_measure(args.side, args.records, args)))
        return
    if args.short:
        args.gpus, args.days, args.runs, args.again = 100, 32, 1, 1
    with tempfile.TemporaryDirectory() as folder:
        if args.records is None:
            simulate_fleet_to(Path(folder), n_gpus=args.gpus, n_days=args.days, seed=0)
            print(f"{args.gpus} GPUs x {args.days} days")
        records = args.records or Path(folder) / "records"
        if args.compact and args.records is None:
            deque(compact_records(records, DateSpan(), dt.date.max), maxlen=0)
        print(f"median of {args.runs}")
        _compare(records, args)


if __name__ == "__main__":
    main()
