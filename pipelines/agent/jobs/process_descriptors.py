"""Open files of processes, and what identifies a process besides its number."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Descriptor", "command_name", "container_names", "descriptors"]

_OWNER_MAY_READ, _OWNER_MAY_WRITE = 0o400, 0o200
_UNUSUAL = re.compile(r"[^\w.:/()-]")
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Open file of a process.

    Attributes
    ----------
    link : str
        Path below /proc, valid even if the file was renamed or deleted.
    target : str
        Path of the file, or `pipe:[NUMBER]`.
    is_read, is_written : bool
        How it was opened.
    """

    link: str
    target: str
    is_read: bool
    is_written: bool

    @property
    def opened(self) -> Path:
        """Path below /proc."""
        return Path(self.link)


def descriptors(folder: Path) -> Iterator[Descriptor]:
    """Yield the open files of a process; none if it has ended or may not be examined.

    Parameters
    ----------
    folder : Path
        Of the process, below /proc.
    """
    below = f"{folder}/fd"
    try:
        numbers = os.listdir(below)
    except OSError:
        return
    for number in numbers:
        link = f"{below}/{number}"
        with suppress(OSError):
            mode, target = os.lstat(link).st_mode, os.readlink(link)
            is_read, is_written = mode & _OWNER_MAY_READ, mode & _OWNER_MAY_WRITE
            yield Descriptor(link, target, bool(is_read), bool(is_written))


def command_name(folder: Path) -> str:
    """Return the name of a process's command, or an empty string if it has ended."""
    with suppress(OSError):
        text = (folder / "comm").read_text(encoding="utf-8", errors="replace")
        return _UNUSUAL.sub("?", text.rstrip("\n"))
    return ""


def container_names(folder: Path) -> frozenset[str]:
    """Return the names of a process's container and pod, as they occur in paths of logs."""
    with suppress(OSError):
        text = (folder / "cgroup").read_text(encoding="utf-8", errors="replace")
        pods = {uid.replace("_", "-") for uid in _POD.findall(text)}
        return frozenset({*_CONTAINER.findall(text), *pods})
    return frozenset()
