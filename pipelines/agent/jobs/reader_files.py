"""Files and pipes that a reader of a job's output writes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from forewarn.pipelines.agent.jobs.process_descriptors import Descriptor

__all__ = ["Inode", "OutputFile", "is_text", "reader_files", "reader_pipes"]

_MAX_FILES = 8
_HEAD_BYTES = 4096
_NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")
_SYSTEM_LOGS = Path("/var/log")
Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class OutputFile:
    """Regular file that receives output.

    Attributes
    ----------
    opened : Path
        Path below /proc, valid even if the file was renamed or deleted.
    path : Path
    inode : (int, int)
        Device and inode.
    is_console : bool
        Whether another process writes it, which may read more than this process's output.
    """

    opened: Path
    path: Path
    inode: Inode
    is_console: bool = False

    @classmethod
    def from_status(
        cls, opened: Path, target: str, status: os.stat_result, *, is_console: bool = False
    ) -> Self:
        """Return the file that a descriptor names."""
        path = Path(target.removesuffix(" (deleted)"))
        return cls(opened, path, (status.st_dev, status.st_ino), is_console)


def reader_files(
    written: Iterable[Descriptor], uid: int, containers: frozenset[str] = frozenset()
) -> list[OutputFile]:
    """Return the files of a reader that may hold a job's output, newest first, at most eight.

    Parameters
    ----------
    written : iterable of Descriptor
        What the reader has open.
    uid : int
        User of the job, who has to own a file.
    containers : frozenset of str
        Names of the job's container and pod, of which a path has to contain one, if the reader runs
        outside of it. The owner does not count then.
    """
    files: list[tuple[int, OutputFile]] = []
    for item in written:
        if not item.is_written or not item.target.startswith("/"):
            continue
        if item.target.startswith(_NO_FILES):
            continue
        with suppress(OSError):
            status = item.opened.stat()
            file = OutputFile.from_status(item.opened, item.target, status, is_console=True)
            is_own = (
                any(name in item.target for name in containers)
                if containers
                else status.st_uid == uid and not file.path.is_relative_to(_SYSTEM_LOGS)
            )
            is_temporary = file.path.name == f"#{status.st_ino}"  # it never had a name
            if stat.S_ISREG(status.st_mode) and is_own and not is_temporary:
                files.append((status.st_mtime_ns, file))
    files.sort(key=lambda pair: -pair[0])
    return [file for _, file in files[:_MAX_FILES]]


def reader_pipes(written: Iterable[Descriptor]) -> Iterator[str]:
    """Yield the pipes that a reader writes: its output, and named ones, as containerd's."""
    for item in written:
        is_anonymous = item.target.startswith("pipe:[")
        if item.is_written and is_anonymous and item.opened.name in ("1", "2"):
            yield item.target
        elif item.is_written and item.target.startswith("/"):
            with suppress(OSError):
                if stat.S_ISFIFO(item.opened.stat().st_mode):
                    yield item.target


def is_text(file: OutputFile) -> bool:
    """Return whether the start of a file may be a log rather than a checkpoint or a database."""
    with suppress(OSError):
        number = os.open(file.opened, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(number, "rb") as stream:
            return b"\0" not in stream.read(_HEAD_BYTES)
    return False
