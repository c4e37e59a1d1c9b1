"""What `forewarn launch` did: a line for each start, change and end of an attempt of a job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.recovery.scheduler_runs import ScheduledRun
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment
from forewarn.pipelines.storage.files.regular_files import require_regular
from forewarn.response.recovery.job_run import RunEnd
from forewarn.response.state.rung import Rung

__all__ = [
    "ATTEMPT_PREFIX",
    "Attempt",
    "LaunchRecordError",
    "Loss",
    "attempt_folder",
    "launched_runs",
    "notices_folder",
    "read_attempts",
    "write_change",
    "write_end",
    "write_start",
]

ATTEMPT_PREFIX: Final = "attempt-"
_RECORD: Final = "launch.jsonl"
_MAX_BYTES: Final = 64 * 2**20


class LaunchRecordError(InputError):
    """A record that cannot be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss of a machine whose rank a spare takes within the attempt.

    Attributes
    ----------
    machine : str
    noticed : int
        Nanoseconds since 1970 UTC.
    joined : int or None
        When the spare had the rank; None before.
    """

    machine: str
    noticed: Nanoseconds
    joined: Nanoseconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A run of the job by the launcher.

    Attributes
    ----------
    number : int
        From 1.
    begin : int
        Nanoseconds since 1970 UTC.
    submitted : int or None
        When it was decided; None for the first.
    rung : Rung or None
        How the job went on by it; None for the first.
    machines : tuple of str
        By node rank.
    processes : int
        Per machine.
    reason : str
        Of the decision.
    out : tuple of str
        Machines that the job does not use any more.
    losses : tuple of Loss
        In order.
    end : int or None
        None while it runs.
    ended : RunEnd
    noticed : int or None
        When its trouble was stated.
    cause : str
    blamed : str
        Machine that was found to be the cause; empty if none was.
    origin : str
        As `FaultOrigin`.
    saved : int or None
        Step of its last checkpoint; None if it saved none.
    is_started : bool
        Whether it made a step.
    """

    number: int
    begin: Nanoseconds
    submitted: Nanoseconds | None
    rung: Rung | None
    machines: tuple[str, ...]
    processes: int
    reason: str
    out: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    end: Nanoseconds | None = None
    ended: RunEnd = RunEnd.RUNNING
    noticed: Nanoseconds | None = None
    cause: str = ""
    blamed: str = ""
    origin: str = ""
    saved: int | None = None
    is_started: bool = False


_STARTED: Final = (
    *("number", "begin", "submitted", "rung"),
    *("machines", "processes", "reason", "out"),
)
_CHANGED: Final = ("number", "machines", "out", "losses")
_ENDED: Final = (
    *("number", "end", "ended", "noticed", "cause"),
    *("blamed", "origin", "saved", "is_started"),
)
_TIMES: Final = ("begin", "submitted", "end", "noticed", "joined")


def attempt_folder(folder: Path, number: int) -> Path:
    """Return the folder of an attempt, in the form that `forewarn diagnose run` reads."""
    return folder / f"{ATTEMPT_PREFIX}{number:04d}"


def notices_folder(folder: Path) -> Path:
    """Return the folder in which a job is asked to save, as `examples/save_on_notice.py` reads."""
    return folder / "notices"


def write_start(folder: Path, attempt: Attempt) -> None:
    """Append the start of an attempt; it is on disk on return."""
    _append(folder, "start", attempt, _STARTED)


def write_change(folder: Path, event: str, attempt: Attempt) -> None:
    """Append that a machine was replaced (`replace`), or its spare joined (`join`), durably."""
    _append(folder, event, attempt, _CHANGED)


def write_end(folder: Path, attempt: Attempt) -> None:
    """Append the end of an attempt; it is on disk on return."""
    _append(folder, "end", attempt, _ENDED)


def _append(folder: Path, event: str, attempt: Attempt, names: tuple[str, ...]) -> None:
    values = {name: value for name, value in asdict(attempt).items() if name in names}
    if "losses" in values:
        values["losses"] = [_with_times(loss) for loss in values["losses"]]
    with (folder / _RECORD).open("ab") as file:
        file.write(json.dumps({"event": event, **_with_times(values)}).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _with_times(values: dict[str, Any]) -> dict[str, Any]:
    known = (name for name in _TIMES if values.get(name) is not None)
    return {**values, **{name: format_iso(values[name]) for name in known}}


def read_attempts(folder: Path) -> list[Attempt]:
    """Return the attempts of a job, in order; empty without a record.

    Raises
    ------
    LaunchRecordError
        If a line is invalid. An incomplete last line is ignored: the launcher was killed.
    """
    path = folder / _RECORD
    if not path.exists():
        return []
    require_regular(path)
    if path.stat().st_size > _MAX_BYTES:
        raise LaunchRecordError(f"{path}: is larger than {_MAX_BYTES // 2**20} MiB.")
    attempts: dict[int, Attempt] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            values = _values(json.loads(line))
            if values.pop("event") == "start":
                attempts[values["number"]] = Attempt(**values)
            else:
                attempts[values["number"]] = replace(attempts[values["number"]], **values)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise LaunchRecordError(
                f"{path}, line {number}: is no line of `forewarn launch`."
            ) from None
    return [attempts[number] for number in sorted(attempts)]


def _values(line: dict[str, Any]) -> dict[str, Any]:
    values = dict(line)
    for name in _TIMES:
        if values.get(name) is not None:
            values[name] = Nanoseconds(parse_moment(values[name]))
    if "losses" in values:
        values["losses"] = tuple(Loss(**_values(loss)) for loss in values["losses"])
    for name in ("machines", "out"):
        if name in values:
            values[name] = tuple(map(str, values[name]))
    if values.get("rung") is not None:
        values["rung"] = Rung(values["rung"])
    if "ended" in values:
        values["ended"] = RunEnd(values["ended"])
    return values


def launched_runs(folder: Path) -> Iterator[ScheduledRun]:
    """Yield the attempts of a job as runs, for its account; a replaced machine ends a run."""
    for attempt in read_attempts(folder):
        run = ScheduledRun(
            folder.name,
            folder.name,
            attempt.submitted,
            attempt.begin,
            attempt.end,
            attempt.ended,
            attempt.cause,
            len(attempt.machines) * attempt.processes,
            attempt.machines,
            rung=attempt.rung,
            blamed=(attempt.blamed,) if attempt.blamed else (),
            noticed=attempt.noticed,
        )
        for loss in attempt.losses:
            if not run.begin < loss.noticed:
                continue  # before the spare of the loss before had its rank
            yield replace(
                run,
                end=loss.noticed,
                ended=RunEnd.FAILED,
                cause="a machine was lost",
                blamed=(loss.machine,),
                noticed=loss.noticed,
            )
            begin = loss.joined or loss.noticed
            run = replace(run, submitted=loss.noticed, begin=begin, rung=Rung.REPLACE)
        yield run
