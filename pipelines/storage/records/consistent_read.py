"""Consistent reads of files that a collector may replace: repeated until none changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from forewarn.features.records.record_table import RecordsError
from forewarn.pipelines.storage.files.location import Location, RemotePath

__all__ = ["FileStamp", "ReplacedFileError", "read_consistent"]

_Result = TypeVar("_Result")
_MAX_TRIES = 10  # a collector replaces the file of the current hour every few seconds


class FileStamp(NamedTuple):
    """Attributes of a file that change when it is replaced."""

    inode: int
    size: int
    modified: int

    @classmethod
    def from_path(cls, path: Location) -> FileStamp:
        """Return the stamp of the file at a path."""
        if isinstance(path, RemotePath):
            return cls(0, *path.size_and_time())
        now = path.stat()
        return cls(now.st_ino, now.st_size, now.st_mtime_ns)

    @classmethod
    def from_path_if_exists(cls, path: Location) -> FileStamp | None:
        """Return the stamp of the file at a path; None if there is none."""
        try:
            return cls.from_path(path)
        except FileNotFoundError:
            return None

    def is_of_same_file(self, other: FileStamp | None) -> bool:
        """Tell whether two stamps are of the same file, at any time."""
        return other is not None and other.inode == self.inode


class ReplacedFileError(RecordsError):
    """A file was replaced while it was read; reading it again may succeed."""

    def __init__(self, path: Location, *, missing: bool = False) -> None:
        super().__init__(f"{path}: was replaced while it was read; try again.", is_transient=True)
        self.path, self.missing = path, missing


def read_consistent(read: Callable[[], _Result]) -> _Result:
    """Call `read` until no file is replaced during the call.

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
            f"{path}: is listed but does not exist; the listing is outdated. Try again.",
            is_transient=True,
        )
    raise RecordsError(
        f"{path}: was replaced during each attempt to read it, expected it to stay a moment.",
        is_transient=True,
    )
