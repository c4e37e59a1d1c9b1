"""Time of compacting and examining records on Dask, beside threads: two workers each.

    python benchmarks/executors.py [--short] [--gpus N] [--days N] [--runs N]

Prints medians and their ratios. The cluster starts, and every worker has done each task once,
before anything is counted; the kinds are measured in turn. It ends with an error where the results
are not the same, and never because of a time.
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
from typing import Any

from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.doctor.file_survey import survey_file
from forewarn.pipelines.prediction_job import open_store
from forewarn.pipelines.runtime.executor import Executor, ExecutorKind
from forewarn.pipelines.runtime.slice_map import SliceMap
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.storage.compaction_run import compact_plainly

KINDS: tuple[ExecutorKind, ...] = ("threads", "dask")
N_WORKERS = 2


def _compact(slices: SliceMap, records: Path) -> Any:
    dates = sorted({date for date, _ in open_store(records, Settings()).files()})
    outcomes = list(slices.map(compact_plainly, [(records, date) for date in dates]))
    return outcomes, [path.read_bytes() for path in sorted(records.glob("date=*/*"))]


def _doctor(slices: SliceMap, records: Path) -> Any:
    store = open_store(records, Settings())
    items = [(path, date, asdict(store.kinds)) for date, path in store.files()]
    return [repr(survey) for survey in slices.map(survey_file, items)]


COMMANDS: dict[str, Callable[[SliceMap, Path], Any]] = {"compact": _compact, "doctor": _doctor}


def _run(
    command: Callable[[SliceMap, Path], Any], slices: SliceMap, records: Path, copy: Path
) -> tuple[float, Any]:
    """Return the seconds of a command on a copy of the records, and its result."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(records, copy)
    start = time.perf_counter()
    result = command(slices, copy)
    return time.perf_counter() - start, result


def _measure(records: Path, copy: Path, runs: int, workers: dict[ExecutorKind, SliceMap]) -> None:
    for name, command in COMMANDS.items():
        seconds: dict[ExecutorKind, list[float]] = {kind: [] for kind in KINDS}
        expected = None
        for number in range(runs + 1):
            for kind, slices in workers.items():
                took, result = _run(command, slices, records, copy)
                expected = expected or result
                if result != expected:
                    raise SystemExit(f"{name}: another result on {kind}")
                if number:  # the first one imports and compiles
                    seconds[kind].append(took)
        for kind in KINDS:
            print(f"{name:8} {kind:8} {statistics.median(seconds[kind]):6.2f} s")
        ratios = [dask / threads for threads, dask in zip(*seconds.values(), strict=True)]
        ratio, load = statistics.median(ratios), os.getloadavg()[0]
        print(f"{name}: ratio {ratio:.2f} of Dask to threads (load average {load:.1f})")


def main() -> None:
    """Simulate a fleet in a temporary folder and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small fleet, once")
    parser.add_argument("--gpus", type=int, default=5000)
    parser.add_argument("--days", type=int, default=8)
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    n_gpus, n_days, runs = (100, 3, 1) if asked.short else (asked.gpus, asked.days, asked.runs)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        simulate_fleet_to(Path(folder), n_gpus=n_gpus, n_days=n_days, seed=0)
        records = Path(folder) / "records"
        print(f"{n_gpus} GPUs x {n_days} days, median of {runs}")
        executors = {kind: Executor(kind, N_WORKERS) for kind in KINDS}
        workers = {kind: stack.enter_context(each.started()) for kind, each in executors.items()}
        _measure(records, Path(folder) / "copy", runs, workers)


if __name__ == "__main__":
    main()
