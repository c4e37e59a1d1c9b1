"""Runs all benchmarks and appends their results to a history file, one line of JSON each.

    python benchmarks/run_benchmarks.py [--short] [--only NAMES] [--history FILE]

Records what a benchmark prints, and the time, CPU time and peak memory of all its processes. A line
has the commit, the machine and the load average, so that lines can be compared; a run at a load
average above 3 is unreliable and is not recorded. The short form, which CI runs, records nothing.
Scripts without a short form, which measure precision or take an hour, are not run here. A benchmark
fails if a result is wrong, never because it is slow; the others run all the same, and the exit code
is 1.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
MAX_LOAD = 3.0


def benchmarks() -> list[Path]:
    """Return the scripts with a short form, which are run here."""
    others = [path for path in sorted(FOLDER.glob("*.py")) if path != Path(__file__).resolve()]
    return [path for path in others if '"--short"' in path.read_text(encoding="utf-8")]


def run_benchmark(path: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a benchmark, echo its output, and return its cost and its ratios."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parent)},  # one may import another
    )
    lines = []
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "benchmark": path.stem,
        "failed": process.returncode != 0,
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mib": round(usage.ru_maxrss / 1024),
        "ratios": parse_ratios(lines),
        "output": lines,
    }


def parse_ratios(lines: Sequence[str]) -> dict[str, float]:
    """Return the ratios in the output, by the first words of their lines."""
    ratios = {}
    for line in lines:
        match = re.search(r"\bratio +(\d+(?:\.\d+)?)", line)
        if match:
            name = re.split(r" {2,}|[:,\d]", line.strip())[0].strip()
            ratios[name] = float(match[1])
    return ratios


def commit() -> str:
    """Return the commit, with a plus if files have changed since; empty outside of git."""
    texts = [_git("rev-parse", "--short=12", "HEAD"), _git("status", "--porcelain", "-uno")]
    return texts[0] + ("+" if texts[0] and texts[1] else "")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(FOLDER), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:  # git is not installed
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def machine() -> dict[str, Any]:
    """Return what the results depend on apart from the code."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    match = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return match[1] if match else platform.machine()


def run_all(
    paths: Sequence[Path],
    *,
    short: bool,
    history: Path,
    load: Callable[[], float] = lambda: os.getloadavg()[0],
) -> int:
    """Run benchmarks one after another; append a line for each valid one.

    Returns
    -------
    int
        1 if one of them failed, else 0.
    """
    failed = []
    for path in paths:
        print(f"== {path.stem}", flush=True)
        before = load()
        figures = run_benchmark(path, ["--short"] if short else [])
        busy = round(max(before, load()), 2)
        cost = f"{figures['seconds']:.1f} s, CPU {figures['cpu_seconds']:.1f} s"
        print(f"{path.stem}: {cost}, peak memory {figures['peak_mib']} MiB, load {busy:g}")
        if figures.pop("failed"):
            failed.append(path.stem)
        elif not short:
            _append(history, {"load": busy} | figures)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _append(history: Path, figures: dict[str, Any]) -> None:
    if figures["load"] > MAX_LOAD:
        print(
            f"note: the load average was {figures['load']:g}, above {MAX_LOAD:g}: "
            "this run is not recorded",
            flush=True,
        )
        return
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    line = {"at": now, "commit": commit(), "machine": machine()} | figures
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def main() -> int:
    """Run the requested benchmarks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="small and quick; records nothing")
    parser.add_argument("--only", metavar="NAMES", help="comma-separated")
    parser.add_argument("--history", type=Path, default=FOLDER / "history.jsonl", metavar="FILE")
    options = parser.parse_args()
    paths = benchmarks()
    if options.only:
        names = options.only.split(",")
        paths = [path for path in paths if path.stem in names]
        if len(paths) < len(names):
            parser.error(f"--only is {options.only!r}, expected names of files in this folder")
    return run_all(paths, short=options.short, history=options.history)


if __name__ == "__main__":
    sys.exit(main())
