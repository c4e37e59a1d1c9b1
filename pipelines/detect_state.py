"""What is known of the machines of a task between two calls."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from forewarn.features.errors import InputError
from forewarn.models.machine_past import Past
from forewarn.pipelines.store import replacing

__all__ = ["StateError", "load_state", "save_state"]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")


class StateError(InputError):
    """A state that was not written by this program."""


def _path(folder: Path, task: str) -> Path:
    """Return the file of a task; a name that is no plain file name is replaced by its digest."""
    plain = _PLAIN.fullmatch(task) is not None
    name = task if plain else "task." + hashlib.sha256(task.encode()).hexdigest()[:32]
    return folder / f"{name}.npz"


def save_state(folder: Path, task: str, pasts: Mapping[str, Past]) -> None:
    """Write the pasts of a task, by metric, as a whole."""
    arrays: dict[str, Any] = {}
    for number, (metric, past) in enumerate(pasts.items()):
        names = json.dumps({"metric": metric, "machines": past.machines}).encode()
        arrays[f"{number}/names"] = np.frombuffer(names, dtype=np.uint8)
        for part in ("blocks", "offset", "spread", "level"):
            arrays[f"{number}/{part}"] = getattr(past, part)
    with replacing(_path(folder, task)) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def load_state(folder: Path, task: str) -> dict[str, Past]:
    """Read the pasts of a task; none if there are none.

    Raises
    ------
    StateError
        If the file holds something else.
    """
    path = _path(folder, task)
    if not path.exists():
        return {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(_pasts(arrays))
    except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
        raise StateError(
            f"{path}: cannot be used ({type(error).__name__}: {str(error)[:80]}), expected what "
            "`--state` wrote; remove it to begin anew."
        ) from None


def _pasts(arrays: Any) -> list[tuple[str, Past]]:
    found = []
    for number in range(sum(name.endswith("/names") for name in arrays.files)):
        names = json.loads(arrays[f"{number}/names"].tobytes().decode())
        parts = (arrays[f"{number}/{part}"] for part in ("blocks", "offset", "spread", "level"))
        found.append((names["metric"], Past(tuple(names["machines"]), *parts)))
    return found
