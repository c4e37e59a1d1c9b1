"""Files of an object store, with as much of a path's manners as records need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import fs

from forewarn.features.records.table import RecordsError

__all__ = ["Location", "RemotePath"]

_LONGEST = 160  # characters of what the store said
_REFUSALS = ("ACCESS_DENIED", "SIGNATURE", "INVALID_ACCESS_KEY", "INVALID_CLIENT", "EXPIRED")


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A name in an object store.

    Attributes
    ----------
    store : pyarrow.fs.FileSystem
    key : str
        Bucket and name.
    shown : str
        For messages, without options.
    """

    store: Any = field(repr=False, compare=False)
    key: str
    shown: str

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.store, f"{self.key}/{name}", f"{self.shown}/{name}")

    def __str__(self) -> str:
        return self.shown

    def __lt__(self, other: RemotePath) -> bool:
        return self.key < other.key

    @property
    def name(self) -> str:
        """The last part of the name."""
        return PurePosixPath(self.key).name

    @property
    def parent(self) -> RemotePath:
        """What it lies in."""
        cut = len(self.name) + 1
        return RemotePath(self.store, self.key[:-cut], self.shown[:-cut])

    def exists(self) -> bool:
        """Tell whether there is a file or a folder of this name."""
        return bool(self._info().type != fs.FileType.NotFound)

    def is_dir(self) -> bool:
        """Tell whether anything lies below this name."""
        return bool(self._info().type == fs.FileType.Directory)

    def size_and_time(self) -> tuple[int, int]:
        """Return the bytes of a file and when it was written, nanoseconds since 1970 UTC.

        Raises
        ------
        FileNotFoundError
            If there is none.
        """
        info = self._info()
        if info.type != fs.FileType.File:
            raise FileNotFoundError(self.shown)
        return int(info.size), int(info.mtime_ns)

    def children(self) -> list[RemotePath]:
        """Return what lies directly in a folder, by name."""
        with self._answering():
            infos = self.store.get_file_info(fs.FileSelector(self.key, allow_not_found=True))
        return sorted(self / info.base_name for info in infos)

    def opened(self) -> pa.NativeFile:
        """Open a file for reading.

        Raises
        ------
        FileNotFoundError
            If there is none.
        """
        with self._answering():
            return self.store.open_input_file(self.key)

    def put(self, local: Path) -> None:
        """Write a file as a whole: under a hidden name, of which the store makes this one."""
        hidden = self.parent / f"_{self.name}.tmp"
        with self._answering():
            with local.open("rb") as source, self.store.open_output_stream(hidden.key) as target:
                while part := source.read(1 << 23):
                    target.write(part)
            if hidden.size_and_time()[0] != local.stat().st_size:
                raise RecordsError(f"{hidden}: did not arrive as a whole.")
            self.store.move(hidden.key, self.key)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete a file."""
        try:
            with self._answering():
                self.store.delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _info(self) -> Any:
        with self._answering():
            return self.store.get_file_info(self.key)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Say in one line what the store said no to."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise RecordsError(f"{self.shown}: {_reason(str(error))}") from None


def _reason(error: str) -> str:
    """Return in a line what a store said no to; of a long sentence its own words, at the end."""
    line = (error.splitlines() or [""])[0]
    words = line[max(line.find("AWS Error"), 0) :][:_LONGEST]
    if any(word in words for word in _REFUSALS):
        return (
            f"the store refuses the key ({words}), expected AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY of somebody who may do this."
        )
    return f"the store does not do it ({words})."


Location: TypeAlias = Path | RemotePath
