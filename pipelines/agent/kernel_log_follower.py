"""Follows the kernel log over restarts of the agent, of the host and of the log's file."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

__all__ = ["FileFollower", "FollowedLine", "KmsgFollower", "open_follower"]

_MAX_RECORD_BYTES = 8192  # bytes: the longest record of /dev/kmsg
_HEAD_BYTES = 256
_CHUNK_BYTES = 1 << 18
_MAX_LINE_BYTES = 8192  # bytes of a line: a kernel prints less than 1024, a daemon adds little
_PIECE = re.compile(rb"\0+|[^\0\n]*+\n|[^\0\n]+")


@dataclass(frozen=True, slots=True)
class FollowedLine:
    """One line and its position in the log, the same whenever it is read.

    Attributes
    ----------
    text : str
    position : str
    gap : bool
        Lines before it are lost; `text` says so.
    """

    text: str
    position: str
    gap: bool = False


class Follower(Protocol):
    """Anything that yields lines once."""

    def lines(self) -> Iterator[FollowedLine]:
        """Yield what is new; raises OSError where the log cannot be read."""
        ...

    def position(self) -> dict[str, Any]:
        """Return how far it was read, as JSON can hold it."""
        ...

    def close(self) -> None:
        """Close the log."""
        ...


def open_follower(path: Path, position: dict[str, Any]) -> Follower:
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

    def lines(self) -> Iterator[FollowedLine]:
        """Yield the records that were not read yet."""
        if self._file is None:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        while True:
            try:
                record = os.read(self._file, _MAX_RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten before we came; the next read goes on after it
                yield FollowedLine(
                    "the kernel overwrote lines", f"{self.boot}:{self.last}:gap", True
                )
                continue
            if not record:
                return
            yield from self._line(record.decode(errors="replace").rstrip("\n"))

    def _line(self, text: str) -> Iterator[FollowedLine]:
        number = text.split(",", 2)[1:2]
        sequence = int(number[0]) if number and number[0].isdigit() else -1
        if sequence > self.last:
            self.last = sequence
            yield FollowedLine(text.split("\n", 1)[0], f"{self.boot}:{sequence}")

    def position(self) -> dict[str, Any]:
        """Return start of the host and number of the last record."""
        return {"boot": self.boot, "sequence": self.last}

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class FileFollower:
    """Follows a file that a log daemon writes, renames or cuts off.

    Never more than a chunk of it is in memory. NULs, which a file can hold after a loss of power,
    end a line.
    """

    def __init__(self, path: Path, position: dict[str, Any]) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self.inode = int(position.get("inode", 0))
        self.offset = int(position.get("offset", 0))
        self.head = str(position.get("head", ""))
        self.skipping = bool(position.get("skipping", False))  # within a line that is too long
        self._begin = b""
        self._gaps: set[str] = set()

    def lines(self) -> Iterator[FollowedLine]:
        """Yield the whole lines that were not read yet, those of the renamed file first."""
        self._gaps.clear()
        if self._file is None:
            yield from self._open()
        if self._is_cut_off():
            yield from self._after_cut()
        yield from self._rest()
        if self._is_replaced():
            self._start_anew()
            yield from self._rest()

    def _open(self) -> Iterator[FollowedLine]:
        """Go on where an earlier follower stood, if that file is still there."""
        if not self.inode:
            self._start_anew()
            return
        for path in (self.path, *sorted(self.path.parent.glob(f"{self.path.name}?*"))):
            with suppress(OSError):
                file = _open_file(path)
                if _inode(file) == self.inode and _head(file, self.offset) == self.head:
                    self._file, self._begin = file, _first_bytes(file, self.offset)
                    return
                file.close()
        position = f"{self.inode}:{self.offset}:gap"
        self._start_anew()
        yield FollowedLine(
            "the log was cut off or renamed away while nobody read it", position, True
        )

    def _start_anew(self) -> None:
        self.close()
        self._file = _open_file(self.path)
        self.inode, self.offset, self.head = _inode(self._file), 0, ""
        self.skipping, self._begin = False, b""

    def _is_replaced(self) -> bool:
        """Tell whether the name stands for another file."""
        try:
            return self.path.stat().st_ino != self.inode
        except FileNotFoundError:
            return False

    def _is_cut_off(self) -> bool:
        """Tell whether the file lost what was read of it, also where it has grown again since."""
        assert self._file is not None
        cut = os.fstat(self._file.fileno()).st_size < self.offset
        return cut or _first_bytes(self._file, len(self._begin)) != self._begin

    def _after_cut(self) -> Iterator[FollowedLine]:
        """Begin anew; what was written between the last look and the cut is nowhere."""
        assert self._file is not None
        # The size tells two cuts after as many bytes apart.
        size = os.fstat(self._file.fileno()).st_size
        position = f"{self.inode}:{self.offset}:{size}:cut"
        text = f"the log was cut off after {self.offset} bytes: lines that came last may be lost"
        self.offset, self.head, self.skipping, self._begin = 0, "", False, b""
        yield FollowedLine(text, position, True)

    def _rest(self) -> Iterator[FollowedLine]:
        """Yield whole lines; one without its end is still being written."""
        assert self._file is not None
        while True:
            self._file.seek(self.offset)
            chunk = self._file.read(_CHUNK_BYTES)
            before = self.offset
            yield from self._pieces(chunk)
            if len(self._begin) < _HEAD_BYTES:
                self._begin = _first_bytes(self._file, self.offset)
            if self.offset == before:
                return

    def _pieces(self, chunk: bytes) -> Iterator[FollowedLine]:
        """Yield the lines of a chunk, and go on to behind the last whole one."""
        for match in _PIECE.finditer(chunk):
            piece, position = match[0], f"{self.inode}:{self.offset}"
            whole = piece.endswith(b"\n") or match.end() < len(chunk)
            if piece.startswith(b"\0"):
                self.offset += len(piece)
                self.skipping = False
                yield from self._gap(
                    "NULs in the log: a loss of power may have cost lines", position
                )
            elif len(piece) > _MAX_LINE_BYTES or self.skipping:
                self.offset += len(piece)
                self.skipping = not whole
                yield from self._gap(
                    f"lines of more than {_MAX_LINE_BYTES} bytes are left out", position
                )
            elif whole:
                self.offset += len(piece)
                yield FollowedLine(piece.decode(errors="replace").rstrip("\r\n"), position)

    def _gap(self, text: str, position: str) -> Iterator[FollowedLine]:
        """Yield a gap, once in a look however many there are."""
        if text not in self._gaps:
            self._gaps.add(text)
            yield FollowedLine(text, f"{position}:gap", True)

    def position(self) -> dict[str, Any]:
        """Return file and offset, and its first bytes: numbers of files are used again."""
        if self._file is not None:
            self.head = _head(self._file, self.offset)
        at = {"inode": self.inode, "offset": self.offset, "head": self.head}
        return at | ({"skipping": True} if self.skipping else {})

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _open_file(path: Path) -> BinaryIO:
    """Open a log without a buffer: it may be cut off and written anew between two looks."""
    if path.exists() and not path.is_file():  # a pipe would wait for a writer
        raise OSError(errno.EINVAL, "no file", str(path))
    return path.open("rb", buffering=0)


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


def _first_bytes(file: BinaryIO, offset: int) -> bytes:
    file.seek(0)
    return file.read(min(offset, _HEAD_BYTES))


def _head(file: BinaryIO, offset: int) -> str:
    return hashlib.sha256(_first_bytes(file, offset)).hexdigest()[:16]
