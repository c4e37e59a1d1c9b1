"""Time and memory of a training set and of a daily list over the number of records.

    python benchmarks/scaling.py [--gpus LIST] [--days N] [--runs N] [--compact]
                                 [--fleets FOLDER] [--figures JSONL] [--plot PNG]

Simulates a fleet of each size and runs, alternately in fresh processes: pyarrow reading the columns
of a training set into memory (the reference), building the training set like `forewarn train`,
`forewarn score` with the built-in rules, and `forewarn doctor`. Prints medians of time and CPU time
and the highest peak memory, and appends them to a file with the commit and the load average. The
latest results in that file are plotted. 1 to 18 million records:

    python benchmarks/scaling.py --plot docs/scale.png

350 million records, some 4 GB on disk, with the settings of the authors' four months:

    python benchmarks/scaling.py --gpus 58,230,800,5000,20000 --days 122 --compact \
        --plot docs/scale.png

With `--gpus ""` nothing is measured, and the contents of the file are plotted again.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from forewarn.pipelines.rendering.svg_figures import COLOURS, figure_style

FOLDER = Path(__file__).resolve().parent
COMMAND = "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main())"
STAGES = {
    "read": "pyarrow reads",
    "build": "training set",
    "score": "forewarn score, rules",
    "doctor": "forewarn doctor",
}
STYLES = {False: "o-", True: "s--"}


def measured(command: Sequence[str]) -> dict[str, float]:
    """Run a command in a fresh process and return its seconds, CPU seconds and peak MiB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
    }


def commands(records: Path, out: Path) -> dict[str, list[str]]:
    """Return the command of each stage, including process start."""
    newest = max(path.name.removeprefix("date=") for path in records.glob("date=*"))
    at = (dt.date.fromisoformat(newest) + dt.timedelta(days=1)).isoformat()
    script = [str(FOLDER / "training_set.py"), "--records", str(records), "--again", "0", "--side"]
    sides = {
        "read": [sys.executable, *script, "read"],
        "build": [sys.executable, str(FOLDER / "as_command.py"), *script, "build"],
    }
    score = ["score", "--records", str(records), "--model", "builtin:rules", "--at", at]
    ours = {"score": [*score, "--out", str(out)], "doctor": ["doctor", str(records), "--json"]}
    return sides | {name: [sys.executable, "-c", COMMAND, *line] for name, line in ours.items()}


def measure(
    n_gpus: int, n_days: int, runs: int, fleets: Path | None, *, compact: bool
) -> list[dict[str, Any]]:
    """Simulate a fleet unless it exists, and return the measurements of each stage."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = fleets / f"{n_gpus}x{n_days}" if fleets else Path(temporary)
        records, figures = folder / "records", []
        is_new = not records.exists()
        if is_new:
            # In another process: the kernel would count its memory as that of later children.
            size = ["--gpus", str(n_gpus), "--days", str(n_days), "--seed", "0"]
            simulating = ["simulate", "fleet", "--out", str(folder), *size]
            subprocess.run([sys.executable, "-c", COMMAND, *simulating], check=True)
        if compact:
            compacting = ["compact", "--records", str(records)]
            once = measured([sys.executable, "-c", COMMAND, *compacting])
            if is_new:  # else it had nothing to do
                figures.append({"stage": "compact"} | once)
        files = [path for path in records.glob("date=*/*.parquet") if path.name[0] not in "._"]
        holds = {
            "records": sum(pq.read_metadata(path).num_rows for path in files),
            "bytes": sum(path.stat().st_size for path in files),
        }
        of_stage: dict[str, list[dict[str, float]]] = {stage: [] for stage in STAGES}
        for _ in range(runs):
            for stage, command in commands(records, Path(temporary)).items():
                of_stage[stage].append(measured(command))
        for stage, times in of_stage.items():
            median = {key: statistics.median(t[key] for t in times) for key in times[0]}
            peak = max(t["peak_mib"] for t in times)
            figures.append({"stage": stage} | median | {"peak_mib": peak})
    about = {"gpus": n_gpus, "days": n_days, "compacted": compact} | holds
    return [about | row for row in figures]


def main() -> None:
    """Run the requested measurements and plot them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", default="270,800,2000,5000", metavar="LIST", help="sizes")
    parser.add_argument("--days", type=int, default=26, metavar="N", help="per fleet (26)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="per stage (3)")
    parser.add_argument("--compact", action="store_true", help="compact the records first")
    parser.add_argument("--fleets", type=Path, metavar="FOLDER", help="folder to keep them in")
    parser.add_argument(
        "--figures",
        type=Path,
        default=FOLDER / "scaling.jsonl",
        metavar="JSONL",
        help="results file",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="PNG", help="plot the latest results in the file"
    )
    options = parser.parse_args()
    commit = _commit()
    for text in filter(None, options.gpus.split(",")):
        fleet = int(text), options.days, options.runs, options.fleets
        for figure in measure(*fleet, compact=options.compact):
            load = round(os.getloadavg()[0], 2)
            line = {"commit": commit, "load": load, "runs": options.runs} | _rounded(figure)
            print(_sentence(line), flush=True)
            with options.figures.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
    if options.plot:
        lines = options.figures.read_text(encoding="utf-8").splitlines()
        draw([json.loads(line) for line in lines], options.plot)


def _commit() -> str:
    command = ["git", "-C", str(FOLDER), "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _rounded(figure: dict[str, Any]) -> dict[str, Any]:
    return {
        key: round(value, 3) if isinstance(value, float) else value for key, value in figure.items()
    }


def _sentence(line: dict[str, Any]) -> str:
    millions = line["records"] / 1e6
    return (
        f"{millions:7.2f} M records, {line['stage']:8} {line['seconds']:8.2f} s, CPU "
        f"{line['cpu_seconds']:8.2f} s, {line['cpu_seconds'] / millions:6.2f} s a million, peak "
        f"{line['peak_mib']:6.0f} MiB, load {line['load']:g}"
    )


@figure_style()
def draw(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Plot CPU seconds and peak memory of each stage over records, as last measured."""
    lines = [line for line in lines if line["stage"] in STAGES]
    latest = {line["compacted"]: line["commit"] for line in lines}
    figure = Figure(figsize=(10.0, 4.6), layout="constrained")
    panels = figure.subplots(1, 2)
    for panel, key, label in zip(
        panels, ("cpu_seconds", "peak_mib"), ("CPU seconds", "peak memory, MiB"), strict=True
    ):
        for compacted, commit in sorted(latest.items()):
            for number, (stage, name) in enumerate(STAGES.items()):
                points = sorted(
                    (line["records"] / 1e6, line[key])
                    for line in lines
                    if (line["commit"], line["compacted"], line["stage"])
                    == (commit, compacted, stage)
                )
                if not points:
                    continue
                panel.loglog(
                    *zip(*points, strict=True),
                    STYLES[compacted],
                    color=COLOURS[f"c{number + 1}"],
                    label=f"{name} ({commit[:7]}{', compacted' if compacted else ''})",
                )
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter("{x:g}")  # no scientific notation
            axis.set_minor_formatter(NullFormatter())
        panel.set_xlabel("million records")
        panel.set_ylabel(label)
    panels[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
