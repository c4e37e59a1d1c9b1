"""Folder of a job and its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.diagnosis.ranks import Ranks, parse_ranks
from forewarn.features.errors import InputError
from forewarn.pipelines.storage.files.regular_files import require_regular

__all__ = ["PARTS", "JobFolder", "JobFolderError", "read_text"]

# Paths of the parts, by the names that `blind` and evidence use.
PARTS = {
    "ranks": "ranks.csv",
    "exits": "exits.csv",
    "logs": "logs",
    "flight": "flight",
    "stacks": "stacks",
    "metrics": "metrics",
    "kernel": "kernel",
    "profiles": "profiles",
}
_MAX_TABLE_BYTES = 256 * 2**20


class JobFolderError(InputError):
    """A folder that is not a job's folder."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job's folder.

    Attributes
    ----------
    path : Path
    patterns : tuple of Path
        The site's changes of the knowledge base.
    """

    path: Path
    patterns: tuple[Path, ...] = ()

    @classmethod
    def open(cls, path: Path, patterns: Sequence[Path] = ()) -> JobFolder:
        """Open a folder.

        Raises
        ------
        JobFolderError
            If it does not exist or contains no part.
        """
        if not path.is_dir():
            raise JobFolderError(f"{path}: is not a folder, expected a job folder.")
        folder = cls(path, tuple(patterns))
        if all(folder.part(name) is None for name in PARTS):
            raise JobFolderError(
                f"{path}: contains no part of a job, expected at least one of "
                f"{', '.join(PARTS.values())}."
            )
        return folder

    @property
    def name(self) -> str:
        """Name of the job, which is the name of its folder."""
        return self.path.resolve().name

    def part(self, name: str) -> Path | None:
        """Return the path of a part, or None if it is absent."""
        path = self.path / PARTS[name]
        return path if path.exists() else None

    def ranks(self) -> Ranks:
        """Read `ranks.csv`; without it, return an empty table that is not `listed`."""
        path = self.part("ranks")
        return Ranks({}, listed=False) if path is None else parse_ranks(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read a table as UTF-8.

    Raises
    ------
    JobFolderError
        If the path is not a regular file, is too large, or is not text.
    """
    require_regular(path)
    if path.stat().st_size > _MAX_TABLE_BYTES:
        raise JobFolderError(f"{path}: is larger than {_MAX_TABLE_BYTES} bytes, expected a table.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobFolderError(
            f"{path}: byte {error.start} is not valid UTF-8, expected a text table."
        ) from None
