"""Stores the machine baselines of a task between two calls."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from forewarn.features.errors import InputError
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_names import safe_file_name

__all__ = ["StateError", "load_baselines", "load_baselines_or_empty", "save_baselines", "set_aside"]

_PARTS = ("blocks", "offset", "spread", "level", "measured")
# What readers raise on a truncated, damaged or unrelated file.
_READ_ERRORS = (
    *(ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile, zlib.error),
    *(NotImplementedError, RecursionError),
)


class StateError(InputError):
    """The state was not written by this program."""


def _path(folder: Path, task: str) -> Path:
    return folder / f"{safe_file_name(task)}.npz"


def save_baselines(folder: Path, task: str, baselines: Mapping[str, MachineBaseline]) -> None:
    """Write the baselines of a task, by metric, atomically."""
    arrays: dict[str, Any] = {}
    for number, (metric, baseline) in enumerate(baselines.items()):
        names = json.dumps({"metric": metric, "machines": baseline.machines}).encode()
        arrays[f"{number}/names"] = np.frombuffer(names, dtype=np.uint8)
        for part in _PARTS:
            arrays[f"{number}/{part}"] = getattr(baseline, part)
    with replacing(_path(folder, task)) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def load_baselines(folder: Path, task: str) -> dict[str, MachineBaseline]:
    """Read the baselines of a task; empty if there are none.

    Raises
    ------
    StateError
        If the file holds something else.
    """
    path = _path(folder, task)
    if not path.exists():
        return {}
    try:
        if not path.is_file():  # opening a FIFO would block forever
            raise ValueError("is not a regular file")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(_read_baselines(arrays))
    except _READ_ERRORS as error:
        raise StateError(
            f"{path}: cannot be used ({type(error).__name__}: {str(error)[:80]}), expected a file "
            "written by `--state`"
        ) from None


def load_baselines_or_empty(folder: Path | None, task: str) -> dict[str, MachineBaseline]:
    """Read the baselines of a task; rename a file that cannot be used, and note it."""
    if folder is None:
        return {}
    try:
        return load_baselines(folder, task)
    except StateError as error:
        set_aside(_path(folder, task), error)
        return {}


def set_aside(path: Path, why: Exception) -> None:
    """Rename an unusable file, so that a new one is started and the old one can be inspected."""
    aside = path.with_name(f"{path.name}.unusable")
    try:
        path.replace(aside)
    except OSError as error:
        note(f"{why}; starting from scratch, but it cannot be renamed ({error.strerror})")
    else:
        note(f"{why}; renamed to {aside.name}, starting from scratch")


def _read_baselines(arrays: Any) -> list[tuple[str, MachineBaseline]]:
    baselines = []
    for number in range(sum(name.endswith("/names") for name in arrays.files)):
        names = json.loads(arrays[f"{number}/names"].tobytes().decode())
        baseline = MachineBaseline(
            tuple(names["machines"]), *(arrays[f"{number}/{part}"] for part in _PARTS)
        )
        _check(baseline)
        baselines.append((names["metric"], baseline))
    return baselines


def _check(baseline: MachineBaseline) -> None:
    """Refuse arrays of inconsistent shapes, which compiled loops would read past the end of."""
    n_machines, n_blocks = len(baseline.machines), baseline.blocks.size
    if baseline.blocks.shape != (n_blocks,) or baseline.blocks.dtype != np.int64:
        raise ValueError("block numbers have another shape or type")
    for values in (baseline.offset, baseline.spread, baseline.level, baseline.measured):
        if values.shape != (n_machines, n_blocks) or values.dtype != np.float32:
            raise ValueError(f"array of shape {values.shape} for {n_machines} machines")
