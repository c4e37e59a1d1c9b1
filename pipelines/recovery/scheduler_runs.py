"""Runs of a job as Slurm recorded them: `sacct -D -P`, or the file of completed jobs."""

from __future__ import annotations

import csv
import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forewarn.features.errors import InputError
from forewarn.features.hostlist import HostlistError, expand
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.storage.files.regular_files import require_regular
from forewarn.response.recovery.job_run import RunEnd
from forewarn.response.state.rung import Rung

__all__ = ["SCHEDULER_COLUMNS", "ScheduledRun", "SchedulerFileError", "read_scheduled_runs"]

SCHEDULER_COLUMNS: Final = (
    "JobIDRaw",
    "JobName",
    "Submit",
    "Start",
    "End",
    "State",
    "AllocTRES",
    "NodeList",
)
"""What to ask `sacct` for."""

_MAX_BYTES = 64 * 2**20
_COMPLETED_NAMES: Final = {  # of the file of completed jobs, by the name in sacct
    "JobIDRaw": "JobId",
    "JobName": "Name",
    "Submit": "SubmitTime",
    "Start": "StartTime",
    "End": "EndTime",
    "State": "JobState",
    "AllocTRES": "Tres",
    "NodeList": "NodeList",
}
_PAIR = re.compile(r"(\w+)=(\S*)")
_GPUS = re.compile(r"gres/gpu=(\d+)")
_ENDS: Final = {
    "COMPLETED": RunEnd.COMPLETED,
    "RUNNING": RunEnd.RUNNING,
    "SUSPENDED": RunEnd.RUNNING,
    "CANCELLED": RunEnd.STOPPED,
    "DEADLINE": RunEnd.STOPPED,
    "PREEMPTED": RunEnd.STOPPED,
    "REQUEUED": RunEnd.STOPPED,
    "REVOKED": RunEnd.STOPPED,
    "TIMEOUT": RunEnd.STOPPED,
    "BOOT_FAIL": RunEnd.FAILED,
    "FAILED": RunEnd.FAILED,
    "NODE_FAIL": RunEnd.FAILED,
    "OUT_OF_MEMORY": RunEnd.FAILED,
}
_CAUSES: Final = {
    "BOOT_FAIL": "a machine did not boot",
    "CANCELLED": "cancelled",
    "DEADLINE": "deadline",
    "NODE_FAIL": "a machine failed",
    "OUT_OF_MEMORY": "out of memory",
    "PREEMPTED": "preempted",
    "REQUEUED": "requeued",
    "TIMEOUT": "time limit",
}


class SchedulerFileError(InputError):
    """A file of runs that cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A time during which a job held machines.

    Attributes
    ----------
    job_id, name : str
    submitted : int or None
    begin : int
        Nanoseconds since 1970 UTC.
    end : int or None
        None while it goes on.
    ended : RunEnd
    cause : str
        As far as the scheduler's state tells; else empty.
    gpus : int
        0 if unknown.
    machines : tuple of str
    rung : Rung or None
        Of a launcher, how the job went on by it.
    blamed : tuple of str
        Machines that a launcher found to be the cause of its end.
    noticed : int or None
        When a launcher stated its trouble.
    """

    job_id: str
    name: str
    submitted: Nanoseconds | None
    begin: Nanoseconds
    end: Nanoseconds | None
    ended: RunEnd
    cause: str
    gpus: int
    machines: tuple[str, ...]
    rung: Rung | None = None
    blamed: tuple[str, ...] = ()
    noticed: Nanoseconds | None = None


def read_scheduled_runs(path: Path, *, zone: dt.tzinfo = dt.UTC) -> list[ScheduledRun]:
    """Read the runs of one or several jobs, in order of time.

    Parameters
    ----------
    path : Path
        Output of `sacct -D -P` with a header, in any order of columns, or lines of Slurm's file of
        completed jobs (`JobCompType=jobcomp/filetxt`). Steps of jobs are ignored, and so are runs
        that never began.
    zone : datetime.tzinfo
        In which Slurm printed its times.

    Raises
    ------
    SchedulerFileError
        If it is no such file, or a value is invalid.
    """
    require_regular(path)
    if path.stat().st_size > _MAX_BYTES:
        raise SchedulerFileError(f"{path}: is larger than {_MAX_BYTES // 2**20} MiB.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise SchedulerFileError(f"{path}: byte {error.start} is not valid UTF-8.") from None
    is_completed = bool(lines) and lines[0].startswith("JobId=")
    rows = _completed_rows(lines) if is_completed else _sacct_rows(path, lines)
    runs = [_run(row, f"{path}, line {number}", zone) for number, row in rows]
    return sorted((run for run in runs if run is not None), key=lambda run: run.begin)


def _completed_rows(lines: list[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    for number, line in enumerate(lines, start=1):
        pairs = dict(_PAIR.findall(line))
        names = _COMPLETED_NAMES.items()
        yield number, {name: pairs[other] for name, other in names if other in pairs}


def _sacct_rows(path: Path, lines: list[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    header = lines[0].rstrip("|").split("|") if lines else []
    names = ["JobIDRaw" if name == "JobID" else name for name in header]
    missing = [name for name in ("JobIDRaw", "Start", "End", "State") if name not in names]
    if missing:
        raise SchedulerFileError(
            f"{path}: has no column {missing[0]}, expected the output of "
            f"`sacct -D -P -o {','.join(SCHEDULER_COLUMNS)}` with its header."
        )
    for number, row in enumerate(csv.reader(lines[1:], delimiter="|"), start=2):
        yield number, dict(zip(names, row, strict=False))


def _run(row: Mapping[str, str], where: str, zone: dt.tzinfo) -> ScheduledRun | None:
    """Return a run; None for a step of a job, or a run that never began."""
    job_id = row.get("JobIDRaw", "")
    begin = _time(row.get("Start", ""), f"{where}, Start", zone)
    if not job_id or "." in job_id or begin is None:
        return None
    state = row.get("State", "").partition(" ")[0].rstrip("+")
    if state not in _ENDS:
        raise SchedulerFileError(f"{where}, State: {state[:40]!r} is not a state of a Slurm job.")
    end = _time(row.get("End", ""), f"{where}, End", zone)
    if end is not None and end < begin:
        raise SchedulerFileError(f"{where}, End: is before Start.")
    gpus = _GPUS.search(row.get("AllocTRES", ""))
    return ScheduledRun(
        job_id,
        row.get("JobName", ""),
        _time(row.get("Submit", ""), f"{where}, Submit", zone),
        begin,
        None if end is None else max(end, Nanoseconds(begin + 1)),  # times are in whole seconds
        RunEnd.RUNNING if end is None else _ENDS[state],
        _CAUSES.get(state, ""),
        int(gpus[1]) if gpus else 0,
        _machines(row.get("NodeList", ""), where),
    )


def _machines(text: str, where: str) -> tuple[str, ...]:
    if text in ("", "None assigned", "(null)"):
        return ()
    try:
        return tuple(expand(text))
    except HostlistError as error:
        raise SchedulerFileError(f"{where}, NodeList: {error}.") from None


def _time(text: str, where: str, zone: dt.tzinfo) -> Nanoseconds | None:
    if text in ("", "Unknown", "None", "N/A"):
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise SchedulerFileError(
            f"{where}: {text[:40]!r} is not a time, expected a form such as 2026-11-27T15:00:00."
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
    return Nanoseconds(int(moment.timestamp()) * SECOND)
