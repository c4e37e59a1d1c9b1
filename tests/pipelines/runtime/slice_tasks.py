"""Module-level tasks for workers in other processes."""

from __future__ import annotations

import datetime as dt
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from forewarn.pipelines.storage.records import compaction
from forewarn.pipelines.storage.records.compaction_run import compact_to_dict
from forewarn.pipelines.storage.records.date_merge import MergeCounts, merge_date


def squares(part: tuple[str, int]) -> tuple[str, npt.NDArray[np.float64]]:
    """Return a text and the squares below a number."""
    return part[0].upper(), np.arange(part[1], dtype=np.float64) ** 2


def die(_: int) -> None:
    """Kill the process each time."""
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(number: int) -> int:
    """Raise for slice 1, like invalid input."""
    if number == 1:
        raise ValueError("slice 1 is bad")
    return number


def take_too_long(number: int) -> None:
    """Raise the same error type as a result timeout."""
    raise TimeoutError(f"slice {number} took too long")


def object_of_ours(_: int) -> object:
    """Return an object that only this version of a program can unpickle."""
    return object()


def compact_killed_once(item: tuple[Path, dt.date, Path]) -> dict[str, Any]:
    """Compact a date; the first process at the second day is killed with its file unfinished."""
    folder, date, killed = item

    def kill(*arguments: Any) -> MergeCounts:
        counts = merge_date(*arguments)
        if date.day == 2 and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return counts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compaction, "merge_date", kill)
        return compact_to_dict((folder, date, ()))
