"""Time of compacting records, compared with pyarrow reading and writing the same files unchanged.

    python benchmarks/compact.py [--short] [--gpus N] [--days N] [--files N]

Prints medians, their ratio, the peak memory and the bytes on disk. Dates are compacted as by
`forewarn compact`: all except the newest, as many at a time as there are cores. Each side is
measured in fresh processes, alternately, each on a copy of the records. Fails if a record is lost,
duplicated or changed, never because of a time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.record_table import SERIAL, TIMESTAMP
from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.runtime.progress import Stages
from forewarn.pipelines.sandbox.simulate_fleet import simulate_fleet_to
from forewarn.pipelines.storage.records.compaction_run import DateSpan, compact_records

SIDES = ("pyarrow", "compact")
ORDER = [(SERIAL, "ascending"), (TIMESTAMP, "ascending")]


def _files(records: Path) -> list[Path]:
    return sorted(records.glob("date=*/[!._]*.parquet"))


def _compacted(records: Path) -> list[Path]:
    """Return the files of all dates except the newest, which the command does not compact."""
    files = _files(records)
    return [path for path in files if path.parent != files[-1].parent]


def _measure(side: str, records: Path) -> dict[str, Any]:
    """Read and write all files, or compact all dates; return seconds and peak memory."""
    stages, started = Stages(), time.process_time()
    with stages(side):
        if side == "compact":
            list(compact_records(records, DateSpan(), dt.date.max, Settings().executor.executor))
        else:
            for path in _compacted(records):
                written = path.with_name(f".{path.name}")
                pq.write_table(pq.read_table(path, partitioning=None), written, compression="zstd")
                written.replace(path)
    return asdict(stages.figures()) | {"cpu_seconds": time.process_time() - started}


def _in_fresh_process(side: str, records: Path) -> dict[str, Any]:
    begin = [str(Path(__file__).with_name("as_command.py"))] if side == "compact" else []
    command = [sys.executable, *begin, __file__, "--side", side, "--records", str(records)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def _split(records: Path, n_files: int) -> None:
    """Write each date as a number of files by time, as a collector would."""
    for path in _files(records):
        table = pq.read_table(path, partitioning=None).sort_by(TIMESTAMP)
        path.unlink()
        bounds = [len(table) * i // n_files for i in range(n_files + 1)]
        for number, (low, high) in enumerate(itertools.pairwise(bounds)):
            part = path.with_name(f"collected-{number:02}.parquet")
            pq.write_table(table.slice(low, high - low), part, compression="zstd")


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return a column without a dictionary, and floats as bits, so that NaN equals NaN."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = column.combine_chunks()
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    return array.view(bits[array.type]) if array.type in bits else array


def _sorted_rows(date: Path) -> pa.Table:
    """Return the rows of a date by serial and time."""
    paths = sorted(date.glob("[!._]*"))
    table = pa.concat_tables([pq.read_table(path, partitioning=None) for path in paths])
    types = table.schema
    plain = pa.table({name: _plain(table[name]) for name in table.column_names})
    return plain.sort_by(ORDER).replace_schema_metadata({"types": str(types.types)})


def _check(before: Path, after: Path) -> None:
    """Fail if the records have changed."""
    for date in sorted(before.glob("date=*")):
        if not _sorted_rows(date).equals(_sorted_rows(after / date.name), check_metadata=True):
            raise SystemExit(f"{date.name}: compacting has changed the records")
    if len(_compacted(after)) != len(list(after.glob("date=*"))) - 1:
        raise SystemExit("a date has more than one file after compacting")


def _bytes(records: Path) -> float:
    return sum(path.stat().st_size for path in _files(records)) / 2**20


def _compare(records: Path, work: Path, runs: int) -> None:
    """Measure both sides alternately and print medians."""
    figures: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    copies = {side: work / side for side in SIDES}
    for _ in range(runs):
        for side, copy in copies.items():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(records, copy)
            figures[side].append(_in_fresh_process(side, copy))
    for side, runs_of_side in figures.items():
        seconds = statistics.median(run["stages"][0]["seconds"] for run in runs_of_side)
        peak = max(run["peak_rss_bytes"] for run in runs_of_side)
        cpu = statistics.median(run["cpu_seconds"] for run in runs_of_side)
        print(f"{side:8} {seconds:7.2f} s ({cpu:.2f} of CPU)", end="")
        print(f", peak memory {peak / 2**20:,.0f} MiB", end="")
        print(f", {_bytes(records):,.1f} MiB become {_bytes(copies[side]):,.1f}")
    pairs = zip(*(figures[side] for side in SIDES), strict=True)
    ratios = [b["stages"][0]["seconds"] / a["stages"][0]["seconds"] for a, b in pairs]
    print(f"ratio    {statistics.median(ratios):.2f} (load average {os.getloadavg()[0]:.1f})")
    _check(records, copies["compact"])
    n_rows = sum(pq.read_metadata(path).num_rows for path in _files(records))
    print(f"{n_rows:,} records in {len(_files(records))} files, the same afterwards")


def main() -> None:
    """Simulate a fleet in a temporary folder and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a small fleet, once")
    parser.add_argument("--gpus", type=int, default=5000)
    parser.add_argument("--days", type=int, default=5)
    parser.add_argument("--files", type=int, default=24, help="a date, as a collector writes them")
    parser.add_argument("--records", type=Path, help="measure these instead of a simulated fleet")
    parser.add_argument("--side", choices=SIDES, help="measure one side in this process, as JSON")
    args = parser.parse_args()
    if args.side:
        print(json.dumps(_measure(args.side, args.records)))
        return
    n_gpus, n_days, runs = (100, 4, 1) if args.short else (args.gpus, args.days, 5)
    with tempfile.TemporaryDirectory() as folder:
        records = args.records
        if records is None:
            simulate_fleet_to(Path(folder), n_gpus=n_gpus, n_days=n_days, seed=0)
            records = Path(folder) / "records"
            _split(records, args.files)
            print(f"{n_gpus} GPUs x {n_days} days, {args.files} files a date")
        print(f"median of {runs}")
        _compare(records, Path(folder), runs)


if __name__ == "__main__":
    main()
