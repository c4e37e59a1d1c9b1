"""Inspections of several machines, each started there by a site's command."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from forewarn.features.inspection.check_results import CheckResultsError
from forewarn.pipelines.inspection.result_files import results_table, write_results
from forewarn.pipelines.runtime.bounded_program import run_program
from forewarn.pipelines.runtime.progress import progress_bar

__all__ = ["inspect_hosts"]

_PARALLEL: Final = 64
_MAX_BYTES: Final = 64 << 20
_DEFAULT_SECONDS: Final = 24 * 3600.0
_GRACE_SECONDS: Final = 60.0
_REMOTE_FOLDER: Final = "/var/tmp/forewarn-inspections"  # its journal, where the machine goes on


def inspect_hosts(
    hosts: Sequence[str],
    via: Sequence[str],
    options: Sequence[str],
    out: Path,
    *,
    name: str,
    timeout: float | None = None,
) -> list[dict[str, Any]]:
    """Inspect machines at the same time, and write the results of each.

    A machine that does not answer has one result: `reached`, with the reason.

    Parameters
    ----------
    hosts : sequence of str
    via : sequence of str
        Command that runs another one on a machine, as `["ssh", "{host}"]`.
    options : sequence of str
        Of `forewarn inspect run`.
    out : Path
    name : str
        Name of the set.
    timeout : float, optional
        Seconds of each inspection.

    Returns
    -------
    list of dict
        Rows of RESULTS.
    """
    limit = [] if timeout is None else ["--timeout", f"{timeout:g}s"]

    def inspect(host: str) -> list[dict[str, Any]]:
        command = [part.replace("{host}", host) for part in via]
        command += ["forewarn", "inspect", "run", *options, *limit, "--json", "--machine", host]
        command += ["--out", _REMOTE_FOLDER]
        rows = _run(command, host, name, (timeout or _DEFAULT_SECONDS) + _GRACE_SECONDS)
        write_results(rows, out)
        bar.update()
        return rows

    with progress_bar(len(hosts), name, "machine") as bar, ThreadPoolExecutor(_PARALLEL) as pool:
        return [row for rows in pool.map(inspect, hosts) for row in rows]


def _run(command: Sequence[str], host: str, name: str, seconds: float) -> list[dict[str, Any]]:
    """Return the results that a machine printed, or why there are none."""
    started = time.time_ns()
    try:
        run = run_program(command, seconds, max_bytes=_MAX_BYTES, term_seconds=2.0)
    except (OSError, ValueError) as error:
        return [_unreached(host, name, started, "failed", f"{command[0]} cannot be run: {error}")]
    lines = run.output.decode(errors="replace").splitlines()
    if run.code is None:
        return [_unreached(host, name, started, "timeout", f"no result within {seconds:g} s")]
    rows = [row for row in map(_row, lines) if row is not None]
    others = [line for line in lines if line.strip() and not line.startswith("{")]
    if run.code != 0 or not rows:
        reason = f"ended with exit code {run.code}: {others[-1] if others else 'no output'}"
        return [_unreached(host, name, started, "failed", reason[:300])]
    try:
        results_table(rows, host)
    except CheckResultsError as error:
        return [_unreached(host, name, started, "failed", str(error)[:300])]
    if {row["machine"] for row in rows} != {host}:
        return [_unreached(host, name, started, "failed", "has results of another machine")]
    return rows


def _row(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return row if isinstance(row, dict) and isinstance(row.get("timestamp"), int) else None


def _unreached(host: str, name: str, at: int, status: str, text: str) -> dict[str, Any]:
    return {
        "timestamp": at,
        "machine": host,
        "slot": None,
        "check": "reached",
        "run": uuid.uuid4().hex[:12],
        "value": None,
        "unit": None,
        "status": status,
        "seconds": None,
        "versions": json.dumps({}),
        "set": name,
        "text": text,
    }
