"""Follower of the kernel log across restarts of agent and host, and rotations of the file."""

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

_MAX_RECORD_BYTES = 8192  # longest record of /dev/kmsg
_HEAD_BYTES = 256
_CHUNK_BYTES = 1 << 18
_MAX_LINE_BYTES = 8192  # a kernel prints less than 1024 bytes, a daemon adds little
_PIECE = re.compile(rb"\0+|[^\0\n]*+\n|[^\0\n]+")


@dataclass(frozen=True, slots=True)
class FollowedLine:
    """A line and its position in the log, which is the same each time it is read.

    Attributes
    ----------
    text : str
    position : str
    gap : bool
        Lines before this one are lost; `text` describes the gap.
    """

    text: str
    position: str
    gap: bool = False


class Follower(Protocol):
    """Follower that yields each line once."""

    def lines(self) -> Iterator[FollowedLine]:
        """Yield new lines.

        Raises
        ------
        OSError
            If the log cannot be read.
        """
        ...

    def position(self) -> dict[str, Any]:
        """Return the current position as a JSON object."""
        ...

    def close(self) -> None:
        """Close the log."""
        ...


def open_follower(path: Path, position: dict[str, Any]) -> Follower:
    """Return a follower for a log that continues at an earlier position."""
    if path.is_char_device():
        return KmsgFollower(path, boot_id(), position)
    return FileFollower(path, position)


def boot_id() -> str:
    """Return the id of the current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


class KmsgFollower:
    """Follower of /dev/kmsg, whose records are numbered from boot."""

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
            except BrokenPipeError:  # records were overwritten; the next read continues after them
                yield FollowedLine(
                    "the kernel overwrote unread lines", f"{self.boot}:{self.last}:gap", True
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
        """Return boot id and number of the last record."""
        return {"boot": self.boot, "sequence": self.last}

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class FileFollower:
    """Follower of a file that a log daemon writes, renames or truncates.

    At most one chunk of it is in memory. NULs, which can occur after a power loss, end a line.
    """

    def __init__(self, path: Path, position: dict[str, Any]) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self.inode = int(position.get("inode", 0))
        self.offset = int(position.get("offset", 0))
        self.head = str(position.get("head", ""))
        self.skipping = bool(position.get("skipping", False))  # inside a line that is too long
        self._begin = b""
        self._gaps: set[str] = set()

    def lines(self) -> Iterator[FollowedLine]:
        """Yield the whole lines that were not read yet, those of a renamed file first."""
        self._gaps.clear()
        if self._file is None:
            yield from self._open()
        if self._is_truncated():
            yield from self._after_truncation()
        yield from self._new_lines()
        if self._is_replaced():
            self._restart()
            yield from self._new_lines()

    def _open(self) -> Iterator[FollowedLine]:
        """Continue at the stored position if that file still exists."""
        if not self.inode:
            self._restart()
            return
        for path in (self.path, *sorted(self.path.parent.glob(f"{self.path.name}?*"))):
            with suppress(OSError):
                file = _open_file(path)
                if _inode(file) == self.inode and _head(file, self.offset) == self.head:
                    self._file, self._begin = file, _first_bytes(file, self.offset)
                    return
                file.close()
        position = f"{self.inode}:{self.offset}:gap"
        self._restart()
        yield FollowedLine(
            "the log was truncated or rotated while the agent was not running", position, True
        )

    def _restart(self) -> None:
        self.close()
        self._file = _open_file(self.path)
        self.inode, self.offset, self.head = _inode(self._file), 0, ""
        self.skipping, self._begin = False, b""

    def _is_replaced(self) -> bool:
        """Return whether the path refers to another file."""
        try:
            return self.path.stat().st_ino != self.inode
        except FileNotFoundError:
            return False

    def _is_truncated(self) -> bool:
        """Return whether the file was truncated, even if it has grown again since."""
        assert self._file is not None
        cut = os.fstat(self._file.fileno()).st_size < self.offset
        return cut or _first_bytes(self._file, len(self._begin)) != self._begin

    def _after_truncation(self) -> Iterator[FollowedLine]:
        """Restart at the beginning; lines written just before the truncation are lost."""
        assert self._file is not None
        # The size distinguishes two truncations at the same offset.
        size = os.fstat(self._file.fileno()).st_size
        position = f"{self.inode}:{self.offset}:{size}:cut"
        text = f"the log was truncated after {self.offset} bytes: the last lines may be lost"
        self.offset, self.head, self.skipping, self._begin = 0, "", False, b""
        yield FollowedLine(text, position, True)

    def _new_lines(self) -> Iterator[FollowedLine]:
        """Yield whole lines; a line without a newline is still being written."""
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
        """Yield the lines of a chunk and move the offset past the last whole line."""
        for match in _PIECE.finditer(chunk):
            piece, position = match[0], f"{self.inode}:{self.offset}"
            whole = piece.endswith(b"\n") or match.end() < len(chunk)
            if piece.startswith(b"\0"):
                self.offset += len(piece)
                self.skipping = False
                yield from self._gap(
                    "NUL bytes in the log: a power loss may have lost lines", position
                )
            elif len(piece) > _MAX_LINE_BYTES or self.skipping:
                self.offset += len(piece)
                self.skipping = not whole
                yield from self._gap(
                    f"lines of more than {_MAX_LINE_BYTES} bytes are skipped", position
                )
            elif whole:
                self.offset += len(piece)
                yield FollowedLine(piece.decode(errors="replace").rstrip("\r\n"), position)

    def _gap(self, text: str, position: str) -> Iterator[FollowedLine]:
        """Yield a gap, at most once per poll."""
        if text not in self._gaps:
            self._gaps.add(text)
            yield FollowedLine(text, f"{position}:gap", True)

    def position(self) -> dict[str, Any]:
        """Return inode, offset, and a hash of the first bytes, because inodes are reused."""
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
    """Open a log unbuffered: it may be truncated and rewritten between two polls."""
    if path.exists() and not path.is_file():  # opening a pipe would block
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.open("rb", buffering=0)


def _inode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_ino


def _first_bytes(file: BinaryIO, offset: int) -> bytes:
    file.seek(0)
    return file.read(min(offset, _HEAD_BYTES))


def _head(file: BinaryIO, offset: int) -> str:
    return hashlib.sha256(_first_bytes(file, offset)).hexdigest()[:16]
