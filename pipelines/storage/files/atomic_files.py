"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forewarn.pipelines.storage.files.stale_temporary_files import (
    remove_stale_files,
    temporary_path,
)

__all__ = ["fsync", "replacing", "write_atomic"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success it takes its place, else it is removed.

    What killed processes have left in the folder is removed, too. An error of the disk names the
    file that was to be written.

    Parameters
    ----------
    path : Path
        Its folder is made if needed.
    """
    new_folders = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_stale_files(path.parent)
    temporary = temporary_path(path)
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.errno and error.filename in (None, temporary, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
        for folder in new_folders:
            if not any(folder.iterdir()):
                folder.rmdir()


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, also after a loss of power."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # it would take of a disk that is full
            temporary.unlink()
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Bring a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
