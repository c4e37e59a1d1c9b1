"""Folders of jobs that ended long ago, or that take too much room: they are removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.time_units import DAY, HOUR

__all__ = ["prune_folders"]

_MIN_IDLE_NS = HOUR  # another host may still write to what is younger
_REMOVED_SUFFIX = ".removed"
_MIN_KEPT_SAMPLES = 5  # of stacks, that tell whether a job moves


@dataclass(frozen=True, slots=True)
class _JobFolder:
    path: Path
    last: int  # when anything in it was written, nanoseconds since 1970 UTC
    size: int


def prune_folders(
    folder: Path, *, keep: int, most: int, busy: Collection[str], now: int
) -> Iterator[str]:
    """Remove folders of jobs, the longest untouched first; yield why, a line each.

    Only what an agent made is looked at: a folder with a `ranks.csv` directly below. Those of jobs
    that run here stay, and those that anybody wrote to within an hour. Of a job that runs here
    rounds of stacks go that are too old, and where room is still missing all but the last five.

    Parameters
    ----------
    folder : Path
        In it a folder a job.
    keep : int
        Nanoseconds after which a folder that nobody writes to goes.
    most : int
        Bytes of all together.
    busy : collection of str
        Names of jobs that run here.
    now : int
        Nanoseconds since 1970 UTC.
    """
    for rest in folder.glob(f".*{_REMOVED_SUFFIX}"):  # somebody was killed while removing it
        shutil.rmtree(rest, ignore_errors=True)
    folders = sorted(_job_folders(folder), key=lambda job: job.last)
    room = sum(job.size for job in folders)
    for job in folders:
        is_old, is_much = now - job.last > keep, room > most
        if job.path.name in busy or now - job.last < _MIN_IDLE_NS or not (is_old or is_much):
            continue
        with suppress(OSError):  # another host was faster
            aside = job.path.with_name(f".{job.path.name}{_REMOVED_SUFFIX}")
            job.path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
            room -= job.size
            days = (now - job.last) / DAY
            why = "" if is_old else ", as all folders took too much room"
            yield f"removed {job.path}: nobody wrote to it for {days:.1f} days{why}"
    for job in folders:
        if job.path.name in busy:
            room -= _prune_stacks(job.path / "stacks", oldest=now - keep, excess=room - most)


def _prune_stacks(stacks: Path, *, oldest: int, excess: int) -> int:
    """Remove rounds of stacks, the oldest first; return how many bytes they had."""
    removed = 0
    rounds = sorted(stacks.glob("*Z"))
    for number, path in enumerate(rounds):
        taken = _measure_folder(path)
        is_spare = number < len(rounds) - _MIN_KEPT_SAMPLES
        if 0 < taken.last < oldest or (is_spare and removed < excess):
            shutil.rmtree(path, ignore_errors=True)
            removed += taken.size
    return removed


def _job_folders(folder: Path) -> Iterator[_JobFolder]:
    for entry in os.scandir(folder):
        path = Path(entry.path)
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            with suppress(OSError):
                if (path / "ranks.csv").is_file():
                    yield _measure_folder(path)


def _measure_folder(path: Path) -> _JobFolder:
    last = size = 0
    for parent, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                status = os.lstat(os.path.join(parent, name))
                last, size = max(last, status.st_mtime_ns), size + status.st_size
    return _JobFolder(path, last, size)
