"""The lock of a folder of records in which rows land: one process at a time changes its files."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["has_landed", "landing_locked"]


@contextmanager
def landing_locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of records; wait while another process has it.

    Parameters
    ----------
    folder : Path
    """
    lock = folder / "_state" / "lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def has_landed(folder: Path) -> bool:
    """Tell whether a collector or `forewarn ingest` keeps this folder."""
    return (folder / "_state").is_dir()
