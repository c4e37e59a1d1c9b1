"""Locks between processes, released when their process ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from forewarn.pipelines.runtime.progress import note

__all__ = ["has_landed", "landing_locked", "locked"]


@contextmanager
def locked(path: Path, holder: str) -> Iterator[None]:
    """Hold the lock of a file; wait, with a note, while another process holds it.

    Parameters
    ----------
    path : Path
        Created if needed, in an existing folder, and removed at the end.
    holder : str
        Description of the other process, for the note.
    """
    lock = FileLock(path, fallback_to_soft=False)  # a soft lock would outlive a killed process
    try:
        lock.acquire(blocking=False)
    except Timeout:
        note(f"{holder} is running ({path}); waiting for it to finish")
        lock.acquire()
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # a waiting process notices and creates a new file
        lock.release()


def landing_locked(folder: Path) -> AbstractContextManager[None]:
    """Hold the landing lock of a folder of records (`locked`)."""
    path = folder / "_state" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    return locked(path, "another landing or compaction")


def has_landed(folder: Path) -> bool:
    """Tell whether a collector or `forewarn ingest` writes to this folder."""
    return (folder / "_state").is_dir()
