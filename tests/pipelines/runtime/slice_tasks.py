"""Tasks that workers of other processes import by name."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import numpy.typing as npt


def squares(part: tuple[str, int]) -> tuple[str, npt.NDArray[np.float64]]:
    """Return a text and the squares below a number."""
    return part[0].upper(), np.arange(part[1], dtype=np.float64) ** 2


def die_once(part: tuple[Path, int]) -> int:
    """Write a file by rename; the first worker that comes to slice 2 is killed half-way."""
    folder, number = part
    half = folder / f".{number}.half"
    half.write_text("half")
    if number == 2 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    half.write_text(f"slice {number}")
    half.replace(folder / str(number))
    return os.getpid()


def die(_: int) -> None:
    """Die each time."""
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(number: int) -> int:
    """Raise for slice 1, as bad input does."""
    if number == 1:
        raise ValueError("slice 1 is bad")
    return number


def object_of_ours(_: int) -> object:
    """Return what only this version of a program can read."""
    return object()
