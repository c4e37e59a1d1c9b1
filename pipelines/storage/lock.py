"""One process at a time: a lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forewarn.pipelines.runtime.progress import note

__all__ = ["locked"]


@contextmanager
def locked(path: Path, holder: str) -> Iterator[None]:
    """Hold the lock of a file; wait, and say so, while another process holds it.

    The operating system keeps the lock, so that a killed process holds nothing. The file goes
    when the lock is given back.

    Parameters
    ----------
    path : Path
        Made if it is not there; its folder has to be.
    holder : str
        Who else may hold it, for the note.
    """
    lock = _acquired(path, holder)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def _acquired(path: Path, holder: str) -> int:
    """Return the open file whose lock this process has, and that has its name still."""
    noted = False
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not noted:
                note(f"{holder} is at work ({path}): waiting for its end")
            noted = True
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Who had the lock before has removed the file: the name may be another file's by now.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        os.close(lock)
