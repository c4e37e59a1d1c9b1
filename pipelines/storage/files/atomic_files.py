"""Atomic writes: a file exists completely or not at all."""

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
    """Yield a temporary path that replaces `path` on success and is removed on failure.

    Stale temporary files in the folder are removed as well. A disk error names the target file.

    Parameters
    ----------
    path : Path
        Its folder is created if needed.
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
    """Write a file atomically, safe against a power loss."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):  # a partial file would use up a full disk
            temporary.unlink()
        raise
    fsync(path.parent)


def fsync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
