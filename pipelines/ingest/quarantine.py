"""The quarantine: unreadable files are moved away with their reason, and work continues."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = ["Quarantine", "is_corrupt"]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The folder `_quarantine` of a folder of records, whose files are never read again.

    Attributes
    ----------
    root : Path
        The folder of records; a file keeps its relative path.
    """

    root: Path

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self.root / "_quarantine"

    def move_in(self, path: Path, reason: str) -> str:
        """Move a file into the quarantine and write its reason next to it; return a message.

        Parameters
        ----------
        path : Path
            Below `root`.
        reason : str
        """
        target = _unused_path(self.folder / path.relative_to(self.root))
        write_atomic(target.with_name(f"{target.name}.reason.txt"), f"{reason}\n".encode())
        path.replace(target)
        return f"{path} cannot be read and was moved to {target}: {reason}"

    def __len__(self) -> int:
        """Return the number of files in the quarantine."""
        return sum(1 for _ in self.folder.rglob("*.reason.txt"))


def is_corrupt(error: Exception) -> bool:
    """Tell whether an error means a corrupt file, not a disk that temporarily does not respond.

    Parameters
    ----------
    error : Exception
        Raised while reading. PyArrow raises OSError for both; only that of the disk has a number.
    """
    if isinstance(error, MemoryError):
        return False
    if isinstance(error, OSError):
        return error.errno in (None, errno.EINVAL, errno.EISDIR)
    return True


def _unused_path(path: Path) -> Path:
    """Return an unused name next to `path`."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free
