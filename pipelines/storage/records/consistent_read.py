"""Files that a collector replaces while they are read: read again until one stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from forewarn.features.records.record_table import RecordsError
from forewarn.pipelines.storage.files.location import Location, RemotePath

__all__ = ["FileStamp", "ReplacedFileError", "read_consistent"]

_Result = TypeVar("_Result")
_MAX_TRIES = 10  # a collector replaces the file of the hour every few seconds


class FileStamp(NamedTuple):
    """Whatever changes when another file takes a name."""

    inode: int
    size: int
    modified: int

    @classmethod
    def from_path(cls, path: Location) -> FileStamp:
        """Return the stamp of the file that has this name now."""
        if isinstance(path, RemotePath):
            return cls(0, *path.size_and_time())
        now = path.stat()
        return cls(now.st_ino, now.st_size, now.st_mtime_ns)

    @classmethod
    def from_path_if_exists(cls, path: Location) -> FileStamp | None:
        """Return the stamp of the file that has this name now, None if none has."""
        try:
            return cls.from_path(path)
        except FileNotFoundError:
            return None

    def is_of_same_file(self, other: FileStamp | None) -> bool:
        """Tell whether another stamp is of this file, at whatever time."""
        return other is not None and other.inode == self.inode


class ReplacedFileError(RecordsError):
    """Another file took the name while it was read: a collector is at work. Read it again."""

    def __init__(self, path: Location, *, missing: bool = False) -> None:
        super().__init__(f"{path}: was replaced while it was read, expected it to stay: try again.")
        self.path, self.missing = path, missing


def read_consistent(read: Callable[[], _Result]) -> _Result:
    """Call `read` until no file is replaced meanwhile.

    Raises
    ------
    RecordsError
        If a file is replaced each time.
    """
    for _ in range(_MAX_TRIES):
        try:
            return read()
        except ReplacedFileError as replaced:
            path, missing = replaced.path, replaced.missing
    if missing:
        raise RecordsError(
            f"{path}: is listed and not there, expected a listing that is not old. Call again."
        )
    raise RecordsError(f"{path}: was replaced at each reading, expected it to stay a moment.")
