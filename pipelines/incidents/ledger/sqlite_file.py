"""File of an SQLite ledger: its creation, and its identity while open."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LedgerFile"]


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """Identity of a file when it was opened.

    Attributes
    ----------
    path : Path
    device, inode : int
        Unchanged until the file is removed or replaced.
    """

    path: Path
    device: int
    inode: int

    @classmethod
    def from_path(cls, path: Path) -> LedgerFile:
        """Return the identity of an existing file."""
        state = path.stat()
        return cls(path, state.st_dev, state.st_ino)

    @staticmethod
    def is_empty(path: Path) -> bool:
        """Tell whether the file is missing or empty."""
        return not path.exists() or path.stat().st_size == 0

    @staticmethod
    def create(path: Path) -> bool:
        """Create a file readable by its user only; return False if it exists.

        SQLite gives its log the same permissions. If it cannot be created, SQLite reports the
        reason later.
        """
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError:
            return False
        return True

    def is_same(self) -> bool:
        """Tell whether the file was neither removed nor replaced."""
        try:
            state = self.path.stat()
        except OSError:
            return False
        return (state.st_dev, state.st_ino) == (self.device, self.inode)
