"""Diagnosis of a job in a separate process, which writes the verdict into a file.

The process outlives the one that started it, therefore no round of the loop waits for it. One runs
at a time. The verdict is read like those of other diagnoses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from filelock import FileLock, Timeout

from forewarn.pipelines.incidents.loop.detached_process import run_detached, start_detached
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = ["DiagnosisJob", "is_diagnosing", "start_diagnosis"]

_LOCK: Final = ".lock"
_COMMAND: Final = (
    "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main(sys.argv[1:]))"
)


@dataclass(frozen=True, slots=True)
class DiagnosisJob:
    """A diagnosis to be made.

    Attributes
    ----------
    folder : str
        Folder of the job.
    result : str
        File of the verdict; its folder has to exist.
    timeout : float
        Seconds.
    options : tuple of str
        Further options of `forewarn diagnose run`.
    """

    folder: str
    result: str
    timeout: float
    options: tuple[str, ...] = ()


def is_diagnosing(results: Path) -> bool:
    """Tell whether a diagnosis is running that writes its verdict into a folder."""
    lock = FileLock(results / _LOCK, fallback_to_soft=False)
    try:
        with lock.acquire(blocking=False):
            return False
    except Timeout:
        return True


def start_diagnosis(job: DiagnosisJob) -> None:
    """Start a diagnosis without waiting for it.

    Raises
    ------
    OSError
        If the process cannot be started.
    """
    start_detached(__name__, asdict(job), f"the diagnosis of {job.folder}")


def _run(job: DiagnosisJob) -> None:
    """Write the verdict; until then, and if the diagnosis is killed, the file says `unknown`."""
    result = Path(job.result)
    try:
        with FileLock(result.parent / _LOCK, fallback_to_soft=False).acquire(blocking=False):
            _write(result, _unknown(job, "the diagnosis has not finished"))
            _write(result, _verdict(job))
    except Timeout:  # another responder was first; the next round tries again
        return


def _verdict(job: DiagnosisJob) -> dict[str, Any]:
    command = [sys.executable, "-c", _COMMAND, "diagnose", "run", "--json", "--job", job.folder]
    try:
        done = subprocess.run(
            [*command, *job.options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=job.timeout,
            check=False,
            env={k: v for k, v in os.environ.items() if not k.startswith("FOREWARN_")},
        )
    except subprocess.TimeoutExpired:
        return _unknown(job, f"the diagnosis had no result within {job.timeout:g} s")
    try:
        verdict: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return _unknown(job, words[-1] if words else f"exit code {done.returncode}")
    return verdict


def _unknown(job: DiagnosisJob, cause: str) -> dict[str, Any]:
    """Return a verdict that names no culprit, and why."""
    now = format_iso(time.time_ns())
    verdict = {"job": Path(job.folder).name, "kind": "unknown", "cause": cause, "since": None}
    nothing: dict[str, Any] = {
        name: [] for name in ("culprits", "also", "machines", "evidence_from")
    }
    return {**verdict, **nothing, "probes": {}, "detected_at": now, "at": now}


def _write(path: Path, verdict: dict[str, Any]) -> None:
    write_atomic(path, f"{json.dumps(verdict)}\n".encode())


if __name__ == "__main__":
    run_detached(lambda job: _run(DiagnosisJob(**job)))
