"""Files that can be read to their end: no FIFO that waits for a writer, no device."""

from __future__ import annotations

from pathlib import Path

from forewarn.features.errors import InputError

__all__ = ["IrregularFileError", "refuse_irregular", "require_regular"]


class IrregularFileError(InputError):
    """Something that is no regular file where one is expected."""


def require_regular(path: Path, error: type[InputError] = IrregularFileError) -> None:
    """Refuse a path that is there and no regular file.

    Parameters
    ----------
    path : Path
    error : type
        What to raise: a subclass of `InputError`.
    """
    if path.exists() and not path.is_file():
        raise error(f"{path}: is no regular file, expected one.")


def refuse_irregular(path: Path) -> None:
    """Refuse what is neither a regular file nor a folder of such files and folders.

    Raises
    ------
    IrregularFileError
        It names the first file that cannot be read to its end.
    """
    for entry in (path, *sorted(path.rglob("*"))):
        if not entry.is_dir():
            require_regular(entry)
