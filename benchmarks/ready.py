"""Time of `forewarn ready`, which Slurm waits for before each job, next to an empty Python.

    python benchmarks/ready.py [--short]

The median of processes started in turn, so that a busy machine slows down both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from forewarn.pipelines.runtime.timestamps import format_iso

MACHINE = "node-1"
READY = "import sys; from forewarn.pipelines.cli.entry import main; sys.exit(main())"


def seconds(command: list[str]) -> float:
    """Return the time of a process that has to succeed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Print both medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few processes only")
    n_processes = 5 if parser.parse_args().short else 100
    content = {"machine": MACHINE, "interval_seconds": 600, "faults": []}
    with tempfile.TemporaryDirectory() as folder:
        content["at"] = format_iso(time.time_ns())
        (Path(folder) / "ready.json").write_text(json.dumps(content))
        empty = [sys.executable, "-c", "pass"]
        ready = [sys.executable, "-c", READY, "ready", "--machine", MACHINE, "--for", "prolog"]
        pairs = [(seconds(empty), seconds([*ready, "--state", folder])) for _ in range(n_processes)]
    first, second = (statistics.median(times) for times in zip(*pairs, strict=True))
    print(f"python -c pass  {first * 1000:.1f} ms")
    print(f"forewarn ready  {second * 1000:.1f} ms, ratio {second / first:.2f}")


if __name__ == "__main__":
    main()
