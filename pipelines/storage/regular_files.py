"""Files that can be read to their end: no FIFO that waits for a writer, no device."""

from __future__ import annotations

from pathlib import Path

from forewarn.features.errors import InputError

__all__ = ["IrregularFileError", "refuse_irregular"]


class IrregularFileError(InputError):
    """Something that is no regular file where one is expected."""


def refuse_irregular(path: Path) -> None:
    """Refuse a path that is there and no regular file, and a folder that holds such a thing.

    Raises
    ------
    IrregularFileError
        It names the first one.
    """
    for entry in (path, *sorted(path.rglob("*"))):
        if entry.exists() and not entry.is_file() and not (path.is_dir() and entry.is_dir()):
            raise IrregularFileError(f"{entry}: is no regular file, expected one.")
