"""The file of an SQLite ledger: made for its user alone, and the same one as long as it is open."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LedgerFile"]


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file, as it was when it was opened.

    Attributes
    ----------
    path : Path
    device, inode : int
        What stays the same while nobody removes or replaces it.
    """

    path: Path
    device: int
    inode: int

    @classmethod
    def from_path(cls, path: Path) -> LedgerFile:
        """Return a file that is there."""
        state = path.stat()
        return cls(path, state.st_dev, state.st_ino)

    @staticmethod
    def is_empty(path: Path) -> bool:
        """Tell whether no file is there, or one that nothing was written into."""
        return not path.exists() or path.stat().st_size == 0

    @staticmethod
    def create(path: Path) -> bool:
        """Make a file for its user alone, unless it is there; tell whether it was made.

        SQLite gives its log the same rights. Where it cannot be made, SQLite says why in its words.
        """
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError:
            return False
        return True

    def is_same(self) -> bool:
        """Tell whether it has been neither removed nor replaced."""
        try:
            state = self.path.stat()
        except OSError:
            return False
        return (state.st_dev, state.st_ino) == (self.device, self.inode)
