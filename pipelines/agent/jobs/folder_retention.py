"""Retention of job folders: removes those that are too old or take too much space."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.time_units import DAY, HOUR

__all__ = ["prune_folders"]

_MIN_IDLE_NS = HOUR  # another host may still write to a younger folder
_REMOVED_SUFFIX = ".removed"
_MIN_KEPT_SAMPLES = 5  # stack samples needed to detect progress


@dataclass(frozen=True, slots=True)
class _JobFolder:
    path: Path
    last: int  # last write, nanoseconds since 1970 UTC
    size: int


def prune_folders(
    folder: Path, *, keep: int, most: int, busy: Collection[str], now: int
) -> Iterator[str]:
    """Remove job folders, oldest first; yield one line with the reason for each.

    Only folders that an agent created, with a `ranks.csv` directly inside, are considered. Folders
    of jobs that run on this host stay, and so do folders with writes in the last hour. For jobs
    that run here, old stack samples are removed and, if space is still short, all but the last
    five.

    Parameters
    ----------
    folder : Path
        Contains one folder per job.
    keep : int
        Nanoseconds after the last write at which a folder is removed.
    most : int
        Maximum total size in bytes.
    busy : collection of str
        Names of jobs that run on this host.
    now : int
        Nanoseconds since 1970 UTC.
    """
    for rest in folder.glob(f".*{_REMOVED_SUFFIX}"):  # an earlier removal was interrupted
        shutil.rmtree(rest, ignore_errors=True)
    folders = sorted(_job_folders(folder), key=lambda job: job.last)
    room = sum(job.size for job in folders)
    for job in folders:
        is_old, is_much = now - job.last > keep, room > most
        if job.path.name in busy or now - job.last < _MIN_IDLE_NS or not (is_old or is_much):
            continue
        with suppress(OSError):  # another host has removed it
            aside = job.path.with_name(f".{job.path.name}{_REMOVED_SUFFIX}")
            job.path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
            room -= job.size
            days = (now - job.last) / DAY
            why = "" if is_old else ", because the job folders exceeded the size limit"
            yield f"removed {job.path}: no writes for {days:.1f} days{why}"
    for job in folders:
        if job.path.name in busy:
            room -= _prune_stacks(job.path / "stacks", oldest=now - keep, excess=room - most)


def _prune_stacks(stacks: Path, *, oldest: int, excess: int) -> int:
    """Remove stack samples, oldest first, and return their size in bytes."""
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
