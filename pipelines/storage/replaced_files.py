"""Files that a collector replaces while they are read: read again until one stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from forewarn.features.records.table import RecordsError

__all__ = ["FileStamp", "ReplacedFileError", "read_until_still"]

_Result = TypeVar("_Result")
_TRIES = 10  # a collector replaces the file of the hour every few seconds


class FileStamp(NamedTuple):
    """Whatever changes when another file takes a name."""

    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, path: Path) -> FileStamp:
        """Return the stamp of the file that has this name now."""
        now = path.stat()
        return cls(now.st_ino, now.st_size, now.st_mtime_ns)


class ReplacedFileError(Exception):
    """Another file took the name while it was read: a collector is at work. Read it again."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


def read_until_still(read: Callable[[], _Result]) -> _Result:
    """Call `read` until no file is replaced meanwhile.

    Raises
    ------
    RecordsError
        If a file is replaced each time.
    """
    for _ in range(_TRIES):
        try:
            return read()
        except ReplacedFileError as replaced:
            path = replaced.path
    raise RecordsError(f"{path}: was replaced at each reading, expected it to stay a moment.")
