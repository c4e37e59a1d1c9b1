"""Time of compacting and examining records on Dask, compared with threads: two workers each.

    python benchmarks/executors.py [--short] [--gpus N] [--days N] [--runs N]

Prints medians of seconds and of CPU seconds, and their ratios. On a busy machine CPU seconds are
more reliable, because more threads get more CPU time. The cluster is started, and every worker has
run each task once, before the measurement; the kinds alternate. Fails if the results differ, never
because of a time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]  # comes with distributed

from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.doctor.file_survey import survey_file
from forewarn.pipelines.prediction_job import open_store
from forewarn.pipelines.runtime.executor import Executor, ExecutorKind, SliceMap
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.storage.records.compaction_run import compact_to_dict

KINDS: tuple[ExecutorKind, ...] = ("threads", "dask")
N_WORKERS = 2


def _compact(slices: SliceMap, records: Path) -> Any:
    dates = sorted({date for date, _ in open_store(records, Settings()).files()})
    outcomes = list(slices.map(compact_to_dict, [(records, date, ()) for date in dates]))
    return outcomes, [path.read_bytes() for path in sorted(records.glob("date=*/*"))]


def _doctor(slices: SliceMap, records: Path) -> Any:
    store = open_store(records, Settings())
    items = [(path, date, asdict(store.kinds), ()) for date, path in store.files()]
    return [repr(survey) for survey in slices.map(survey_file, items)]


COMMANDS: dict[str, Callable[[SliceMap, Path], Any]] = {"compact": _compact, "doctor": _doctor}


class CommandCost(NamedTuple):
    """The cost of a command."""

    seconds: float
    cpu_seconds: float


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its workers."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return float(sum(of_process.user + of_process.system for of_process in times))


def _run(
    command: Callable[[SliceMap, Path], Any], slices: SliceMap, records: Path, copy: Path
) -> tuple[CommandCost, Any]:
    """Return the cost of a command on a copy of the records, and its result."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(records, copy)
    start, cpu = time.perf_counter(), _cpu_seconds()
    result = command(slices, copy)
    return CommandCost(time.perf_counter() - start, _cpu_seconds() - cpu), result


def _measure(records: Path, copy: Path, runs: int, workers: dict[ExecutorKind, SliceMap]) -> None:
    for name, command in COMMANDS.items():
        runs_of: dict[ExecutorKind, list[CommandCost]] = {kind: [] for kind in KINDS}
        expected = None
        for number in range(runs + 1):
            for kind, slices in workers.items():
                taken, result = _run(command, slices, records, copy)
                expected = expected or result
                if result != expected:
                    raise SystemExit(f"{name}: another result on {kind}")
                if number:  # the first run imports and compiles
                    runs_of[kind].append(taken)
        _print(name, runs_of)


def _print(name: str, runs_of: dict[ExecutorKind, list[CommandCost]]) -> None:
    for kind, runs in runs_of.items():
        seconds, cpu = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"{name:8} {kind:8} {seconds:6.2f} s ({cpu:.2f} of CPU)")
    pairs = list(zip(runs_of["threads"], runs_of["dask"], strict=True))
    ratios = [dask.seconds / threads.seconds for threads, dask in pairs]
    cpu_ratios = [dask.cpu_seconds / threads.cpu_seconds for threads, dask in pairs]
    load = os.getloadavg()[0]
    print(f"{name}: ratio {statistics.median(ratios):.2f} of Dask to threads (load {load:.1f})")
    print(f"{name} CPU: ratio {statistics.median(cpu_ratios):.2f}")


def main() -> None:
    """Simulate a fleet in a temporary folder and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small fleet, once")
    parser.add_argument("--gpus", type=int, default=5000)
    parser.add_argument("--days", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    n_gpus, n_days, runs = (100, 3, 1) if args.short else (args.gpus, args.days, args.runs)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        simulate_fleet_to(Path(folder), n_gpus=n_gpus, n_days=n_days, seed=0)
        records = Path(folder) / "records"
        print(f"{n_gpus} GPUs x {n_days} days, median of {runs}")
        executors = {kind: Executor(kind, N_WORKERS) for kind in KINDS}
        workers = {kind: stack.enter_context(each.started()) for kind, each in executors.items()}
        _measure(records, Path(folder) / "copy", runs, workers)


if __name__ == "__main__":
    main()
