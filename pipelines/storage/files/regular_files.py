"""Files that can be read to their end: no FIFO, no device, and none that a closed folder hides."""

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
    """Something that is no regular file where one is expected."""


class UnreadableFolderError(InputError):
    """A folder of which nobody can say what it holds."""


def matching_paths(
    folder: Path, pattern: str, error: type[InputError] = UnreadableFolderError
) -> list[Path]:
    """Return the paths below a folder that match, in the order of their names.

    `Path.glob` takes a folder that may not be read for an empty one: what it holds would be left
    out without a word.

    Parameters
    ----------
    folder : Path
        None match where it is not there.
    pattern : str
        Of each level, such as `date=*/*.parquet`.
    error : type
        What to raise if a folder cannot be listed: a subclass of `InputError`.
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
    """Yield the regular files at any level below a folder, by name.

    Names that begin with a dot are left out, and links to folders are not followed.

    Parameters
    ----------
    folder, error
        As of `matching_paths`.
    """
    for path in matching_paths(folder, "[!.]*", error):
        if path.is_dir() and not path.is_symlink():
            yield from files_below(path, error)
        elif path.is_file():
            yield path


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


def require_all_regular(path: Path) -> None:
    """Refuse what is neither a regular file nor a folder of such files and folders.

    Raises
    ------
    IrregularFileError
        It names the first file that cannot be read to its end.
    """
    for entry in (path, *sorted(path.rglob("*"))):
        if not entry.is_dir():
            require_regular(entry)
