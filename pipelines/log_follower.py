"""Follows the kernel log over restarts of the agent, of the host and of the log's file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

__all__ = ["FileFollower", "Followed", "KmsgFollower", "follower_of"]

_RECORD = 8192  # bytes: the longest record of /dev/kmsg
_HEAD = 256
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Followed:
    """One line and its place in the log, the same whenever it is read.

    Attributes
    ----------
    text : str
    place : str
    gap : bool
        Lines before it are lost; `text` says so.
    """

    text: str
    place: str
    gap: bool = False


class Follower(Protocol):
    """Anything that yields lines once."""

    def lines(self) -> Iterator[Followed]:
        """Yield what is new; raises OSError where the log cannot be read."""
        ...

    def position(self) -> dict[str, Any]:
        """Return how far it was read, as JSON can hold it."""
        ...

    def close(self) -> None:
        """Close the log."""
        ...


def follower_of(path: Path, position: dict[str, Any]) -> Follower:
    """Return what follows this log from where an earlier one stood."""
    if path.is_char_device():
        return KmsgFollower(path, boot_id(), position)
    return FileFollower(path, position)


def boot_id() -> str:
    """Return what tells this start of the host from all others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class KmsgFollower:
    """Follows /dev/kmsg, whose records are numbered from the start of the host."""

    def __init__(self, path: Path, boot: str, position: dict[str, Any]) -> None:
        self.path, self.boot = path, boot
        self._file: int | None = None
        self.last = int(position.get("sequence", -1)) if position.get("boot") == boot else -1

    def lines(self) -> Iterator[Followed]:
        """Yield the records that were not read yet."""
        if self._file is None:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        while True:
            try:
                record = os.read(self._file, _RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten before we came; the next read goes on after it
                yield Followed("the kernel overwrote lines", f"{self.boot}:{self.last}:gap", True)
                continue
            if not record:
                return
            yield from self._line(record.decode(errors="replace").rstrip("\n"))

    def _line(self, text: str) -> Iterator[Followed]:
        number = text.split(",", 2)[1:2]
        sequence = int(number[0]) if number and number[0].isdigit() else -1
        if sequence > self.last:
            self.last = sequence
            yield Followed(text.split("\n", 1)[0], f"{self.boot}:{sequence}")

    def position(self) -> dict[str, Any]:
        """Return start of the host and number of the last record."""
        return {"boot": self.boot, "sequence": self.last}

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class FileFollower:
    """Follows a file that a log daemon writes, renames or cuts off."""

    def __init__(self, path: Path, position: dict[str, Any]) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self.inode = int(position.get("inode", 0))
        self.offset = int(position.get("offset", 0))
        self.head = str(position.get("head", ""))

    def lines(self) -> Iterator[Followed]:
        """Yield the whole lines that were not read yet, those of the renamed file first."""
        if self._file is None:
            yield from self._open()
        yield from self._rest()
        if self._replaced():
            self._start_anew()
            yield from self._rest()

    def _open(self) -> Iterator[Followed]:
        """Go on where an earlier follower stood, if that file is still there."""
        if not self.inode:
            self._start_anew()
            return
        for path in (self.path, *sorted(self.path.parent.glob(f"{self.path.name}?*"))):
            file = path.open("rb")
            if (
                os.fstat(file.fileno()).st_ino == self.inode
                and _head(file, self.offset) == self.head
            ):
                self._file = file
                return
            file.close()
        self._start_anew()
        yield Followed("the log was renamed away while nobody read it", f"{self.inode}:gap", True)

    def _start_anew(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self.path.open("rb")
        self.inode, self.offset, self.head = os.fstat(self._file.fileno()).st_ino, 0, ""

    def _replaced(self) -> bool:
        """Tell whether the name stands for another file, or the file was cut off."""
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return False
        return now.st_ino != self.inode or now.st_size < self.offset

    def _rest(self) -> Iterator[Followed]:
        """Yield whole lines; one without its end is still being written."""
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size < self.offset:
            return
        while True:
            self._file.seek(self.offset)
            chunk = self._file.read(_CHUNK)
            whole = chunk[: chunk.rfind(b"\n") + 1]
            if not whole:
                return
            for line in whole.splitlines(keepends=True):
                place = f"{self.inode}:{self.offset}"
                self.offset += len(line)
                yield Followed(line.decode(errors="replace").rstrip("\r\n"), place)

    def position(self) -> dict[str, Any]:
        """Return file and offset, and its first bytes: numbers of files are used again."""
        if self._file is not None:
            self.head = _head(self._file, self.offset)
        return {"inode": self.inode, "offset": self.offset, "head": self.head}

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _head(file: BinaryIO, offset: int) -> str:
    file.seek(0)
    return hashlib.sha256(file.read(min(offset, _HEAD))).hexdigest()[:16]
