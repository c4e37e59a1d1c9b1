"""Checks for regular files: no FIFO, no device, and no folder that cannot be listed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from forewarn.features.errors import InputError

__all__ = [
    "IrregularFileError",
    "UnreadableFolderError",
    "files_below",
    "matching_paths",
    "require_all_regular",
    "require_regular",
]


class IrregularFileError(InputError):
    """A path that is not a regular file."""


class UnreadableFolderError(InputError):
    """A folder that cannot be listed."""


def matching_paths(
    folder: Path, pattern: str, error: type[InputError] = UnreadableFolderError
) -> list[Path]:
    """Return the paths below a folder that match a pattern, sorted by name.

    `Path.glob` treats an unreadable folder as empty, which would silently skip its files.

    Parameters
    ----------
    folder : Path
        If it does not exist, nothing matches.
    pattern : str
        Of each level, such as `date=*/*.parquet`.
    error : type
        Raised if a folder cannot be listed: a subclass of `InputError`.
    """
    first, _, rest = pattern.partition("/")
    try:
        names = sorted(name for name in os.listdir(folder) if fnmatchcase(name, first))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as why:
        reason = os.strerror(why.errno or 0)
        raise error(f"{folder}: cannot be listed ({reason}).") from None
    paths = [folder / name for name in names]
    return (
        [below for path in paths for below in matching_paths(path, rest, error)] if rest else paths
    )


def files_below(folder: Path, error: type[InputError] = UnreadableFolderError) -> Iterator[Path]:
    """Yield the regular files at any level below a folder, sorted by name.

    Names with a leading dot are skipped, and links to folders are not followed.

    Parameters
    ----------
    folder, error
        As for `matching_paths`.
    """
    for path in matching_paths(folder, "[!.]*", error):
        if path.is_dir() and not path.is_symlink():
            yield from files_below(path, error)
        elif path.is_file():
            yield path


def require_regular(path: Path, error: type[InputError] = IrregularFileError) -> None:
    """Reject an existing path that is not a regular file.

    Parameters
    ----------
    path : Path
    error : type
        Raised: a subclass of `InputError`.
    """
    if path.exists() and not path.is_file():
        raise error(f"{path}: is not a regular file.")


def require_all_regular(path: Path) -> None:
    """Reject anything except a regular file, or a folder of such files and folders.

    Raises
    ------
    IrregularFileError
        Names the first irregular file.
    """
    for entry in (path, *sorted(path.rglob("*"))):
        if not entry.is_dir():
            require_regular(entry)
