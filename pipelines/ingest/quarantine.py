"""Where files go that nobody can read: out of the way, with the reason; the rest goes on."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = ["Quarantine", "is_corrupt"]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The folder `_quarantine` of a folder of records; what lies in it is never read again.

    Attributes
    ----------
    root : Path
        The folder of records; a file keeps its path below it.
    """

    root: Path

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self.root / "_quarantine"

    def move_in(self, path: Path, reason: str) -> str:
        """Move a file here, its reason beside it; return both in one line.

        Parameters
        ----------
        path : Path
            Below `root`.
        reason : str
        """
        target = _unused_path(self.folder / path.relative_to(self.root))
        write_atomic(target.with_name(f"{target.name}.reason.txt"), f"{reason}\n".encode())
        path.replace(target)
        return f"{path} cannot be used and is now {target}: {reason}"

    def __len__(self) -> int:
        """Return how many files are here."""
        return sum(1 for _ in self.folder.rglob("*.reason.txt"))


def is_corrupt(error: Exception) -> bool:
    """Tell a file that is broken from a disk that does not answer: that one may do so later.

    Parameters
    ----------
    error : Exception
        What reading it raised. PyArrow raises OSError for both, with a number for the disk's.
    """
    if isinstance(error, MemoryError):
        return False
    if isinstance(error, OSError):
        return error.errno in (None, errno.EINVAL, errno.EISDIR)
    return True


def _unused_path(path: Path) -> Path:
    """Return a name beside `path` that no file has yet."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free
