"""Archives of a job's files: of bounded size, without links and without paths that leave them."""

from __future__ import annotations

import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from forewarn.features.errors import InputError

__all__ = ["ArchiveError", "unpacked"]

_MAX_FILES = 100_000
_MAX_BYTES = 4 * 2**30


class ArchiveError(InputError):
    """An archive that cannot be read."""


@contextmanager
def unpacked(path: Path, max_bytes: int = _MAX_BYTES) -> Iterator[Path]:
    """Unpack the regular files of an archive into a folder that exists until the context ends.

    Parameters
    ----------
    path : Path
        A tar archive, compressed or not.
    max_bytes : int
        Limit of all files together, unpacked.

    Raises
    ------
    ArchiveError
        If it is cut off, is larger than the limit, or a path leaves it.
    """
    with TemporaryDirectory(prefix="forewarn-job-") as folder:
        try:
            with tarfile.open(path, mode="r|*") as archive:
                _extract(archive, Path(folder), path, max_bytes)
        except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise ArchiveError(f"{path}: cannot be read as an archive ({error}).") from None
        yield Path(folder)


def _extract(archive: tarfile.TarFile, folder: Path, path: Path, max_bytes: int) -> None:
    left = max_bytes
    for number, member in enumerate(archive):
        inside = PurePosixPath(member.name)
        left -= member.size
        if number >= _MAX_FILES or left < 0:
            limit = f"at most {max_bytes} bytes in {_MAX_FILES} files"
            raise ArchiveError(f"{path}: is larger when unpacked, expected {limit}.")
        if inside.is_absolute() or ".." in inside.parts:
            raise ArchiveError(f"{path}: {member.name[:100]!r} leaves the archive.")
        if not member.isreg():
            continue  # folders follow from the files; links and devices are left out
        content = archive.extractfile(member)
        if content is not None:
            target = folder / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as stream:
                shutil.copyfileobj(content, stream)
