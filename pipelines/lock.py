"""One process at a time: a lock that ends with the process that holds it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forewarn.pipelines.stages import note

__all__ = ["locked"]


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock of a file; wait, and say so, while another process holds it.

    The operating system keeps it, so one that was killed holds nothing.

    Parameters
    ----------
    path : Path
        Made if it is not there; its folder has to be.
    what : str
        Who else may hold it, for the note.
    """
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(f"{what} is at work ({path}): waiting for its end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
