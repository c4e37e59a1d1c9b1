"""Time and memory of the daily list, each in its own process, including start-up.

    python benchmarks/daily_list.py [--short] [--gpus N --days N] [--copies N] [--compact]
                                    [--model FOLDER] [--runs N]

Makes the list of the built-in rules and, if a predictor of `forewarn train` is given, that of its
models. Prints medians of seconds and CPU seconds, and the peak memory.

Fleets that do not fit into memory during simulation are made of copies: `--gpus 20000 --days 1
--copies 50 --compact --runs 1` is a day of a million GPUs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.records.record_table import MACHINE, SERIAL
from forewarn.features.time_units import DAY
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.prediction_job import open_store
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.storage.records.compaction import compact_date

RULES = "builtin:rules"
_COMMAND = "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main(sys.argv[1:]))"


class ProcessCost(NamedTuple):
    """The cost of one process."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def _score(records: Path, model: str, at: str, out: Path) -> ProcessCost:
    """Make one list in a fresh process."""
    arguments = ["score", "--records", str(records), "--model", model, "--at", at]
    arguments += ["--out", str(out), *(["--hindsight"] if model != RULES else [])]
    start = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", _COMMAND, *arguments],
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"forewarn {' '.join(arguments)} failed")
    cpu = usage.ru_utime + usage.ru_stime
    return ProcessCost(time.perf_counter() - start, cpu, usage.ru_maxrss * 1024)


def _measure(records: Path, model: str, runs: int, out: Path) -> None:
    """Make the list as of the midnight after the newest date, and print its cost."""
    newest = open_store(records, Settings()).files()[-1][0]
    at = format_iso((newest.toordinal() + 1 - 719_163) * DAY)
    taken = [_score(records, model, at, out) for _ in range(runs)]
    seconds, cpu, peak = (statistics.median(values) for values in zip(*taken, strict=True))
    print(f"{model}: {seconds:.2f} s, {cpu:.2f} CPU s, peak memory {peak / 2**30:.2f} GiB")


def _multiply(records: Path, copies: int) -> None:
    """Copy each file several times, with other GPU serials and machines."""
    for path in sorted(records.glob("date=*/*.parquet")):
        table = pq.read_table(path, partitioning=None)
        for number in range(1, copies):
            other = table
            for name in (SERIAL, MACHINE, "rack"):
                texts = pc.binary_join_element_wise(table[name].cast("string"), f"c{number}", "-")
                other = other.set_column(table.column_names.index(name), name, texts)
            pq.write_table(other, path.with_name(f"copy-{number:03}.parquet"))


def main() -> None:
    """Simulate a fleet in a temporary folder and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small fleet, once")
    parser.add_argument("--records", type=Path, help="measure these instead of a simulated fleet")
    parser.add_argument("--model", help="folder of a predictor")
    parser.add_argument("--gpus", type=int, default=2_000)
    parser.add_argument("--days", type=int, default=9)
    parser.add_argument("--copies", type=int, default=1, help="copies of each GPU")
    parser.add_argument("--compact", action="store_true", help="compact all dates first")
    parser.add_argument("--runs", type=int, default=5, help="processes for each list")
    args = parser.parse_args()
    n_gpus, n_days, runs = (100, 9, 1) if args.short else (args.gpus, args.days, args.runs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.records is None:
            simulate_fleet_to(folder, n_gpus=n_gpus, n_days=n_days, seed=0)
            _multiply(folder / "records", args.copies)
            print(f"{n_gpus * args.copies} GPUs x {n_days} days")
        records = args.records or folder / "records"
        for date, _ in open_store(records, Settings()).files() if args.compact else ():
            compact_date(records, date)
        print(f"median of {runs}")
        for model in (RULES, *([args.model] if args.model else [])):
            _measure(records, model, runs, folder / "lists")


if __name__ == "__main__":
    main()
