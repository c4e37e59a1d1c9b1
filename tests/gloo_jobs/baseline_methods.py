"""Baseline methods: torch's own analyzer of dumps, and the log that fell silent first."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
from pathlib import Path

__all__ = ["oldest_line", "torchfrtrace"]

_TIME = re.compile(rb"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) ", re.MULTILINE)
_CULPRITS = re.compile(r"[Cc]ulprit rank (\d+)|missing ranks? \{?\[?([\d, ]+)")
PATIENCE = 120.0


def torchfrtrace(job: Path, programs: Path) -> tuple[list[int], str]:
    """Return the ranks that torchfrtrace identifies, and its last line if it fails.

    It reads pickled dumps in one folder, so that our JSON dumps are converted first.
    """
    folder = job.with_suffix(".pickled")
    folder.mkdir()
    dumps = sorted((job / "flight").glob("*.json"))
    for dump in dumps:
        rank = dump.stem.removeprefix("dump_")
        (folder / f"trace_{rank}").write_bytes(pickle.dumps(json.loads(dump.read_bytes())))
    command = [str(programs / "torchfrtrace"), "--prefix", "trace_", str(folder)]
    report = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=folder
    )
    lines = report.stderr.strip().splitlines() or [""]
    if report.returncode:
        return [], lines[-1]
    numbers = (a or b for a, b in _CULPRITS.findall(report.stdout + report.stderr))
    return sorted({int(n) for text in numbers for n in text.split(",") if n.strip()}), ""


def oldest_line(job: Path) -> int | None:
    """Return the rank whose log fell silent first."""
    last = {}
    for log in job.glob("logs/node-*/*/attempt_0/*/stdout.log"):
        times = _TIME.findall(log.read_bytes())
        if times:
            machine = int(log.relative_to(job).parts[1].removeprefix("node-"))
            last[4 * machine + int(log.parent.name)] = times[-1]
    return min(last, key=lambda rank: (last[rank], rank), default=None)
