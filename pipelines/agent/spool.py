"""Spool: batches on disk that wait to be sent, fault reports first, each kind in order."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = ["FOLDERS", "Spool", "SpoolError"]

FAULTS, BATCHES = "1-faults", "2-batches"
FOLDERS = (FAULTS, BATCHES, "refused")
_DIGITS = 15
_REFUSED_SIZE_DIVISOR, _MAX_REFUSED_FILES = (
    8,
    1000,
)  # share of the limit (1/8) and number of files kept


class SpoolError(Exception):
    """The spool cannot be written, for example because the disk is full."""


@dataclass(slots=True)
class Spool:
    """Folder of waiting batches, used by one process.

    Attributes
    ----------
    folder : Path
    limit : int
        Maximum size of waiting batches in bytes. Beyond it the oldest readings are evicted, and
        then the oldest fault reports.
    dropped : int
        Number of evicted batches.
    strays : list of Path
        Files among the batches that are not batches; they are not touched.
    """

    folder: Path
    limit: int
    dropped: int = 0
    strays: list[Path] = field(default_factory=list)
    _sizes: dict[str, dict[Path, int]] = field(default_factory=dict)
    _used: int = 0
    _next: int = 1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Read the folders once: they are large after a long outage of the collector."""
        for kind in (FAULTS, BATCHES):
            batches, strays = _list_batches(self.folder / kind)
            self._sizes[kind] = batches
            self._used += sum(batches.values())
            self.strays += strays
        self._next += max((int(path.stem) for path in self.waiting()), default=0)

    def put(self, batch: Mapping[str, Any], *, fault: bool = False) -> Path:
        """Store a batch until it is sent.

        Raises
        ------
        SpoolError
            If it cannot be written.
        """
        data = json.dumps(batch, separators=(",", ":")).encode()
        kind = FAULTS if fault else BATCHES
        with self._lock:
            path = self.folder / kind / f"{self._next:0{_DIGITS}d}.json"
            try:
                write_atomic(path, data)
            except OSError as error:
                raise SpoolError(f"{path.parent}: cannot be written ({error.strerror})") from None
            self._next += 1
            self._sizes[kind][path] = len(data)
            self._used += len(data)
            self._evict()
        return path

    def waiting(self) -> list[Path]:
        """Return the waiting batches in sending order."""
        with self._lock:
            return [*self._sizes[FAULTS], *self._sizes[BATCHES]]

    def remove(self, path: Path) -> None:
        """Remove a batch that was sent."""
        _unlink(path)
        self._forget(path)

    def set_aside(self, path: Path) -> None:
        """Keep a batch that the collector rejected for inspection, limited to the newest ones."""
        folder = self.folder / FOLDERS[-1]
        folder.mkdir(parents=True, exist_ok=True)
        aside = path.replace(folder / path.name)
        self._forget(path)
        _keep_newest(aside, self.limit // _REFUSED_SIZE_DIVISOR)

    def _forget(self, path: Path) -> None:
        with self._lock:
            for sizes in self._sizes.values():
                self._used -= sizes.pop(path, 0)

    def _evict(self) -> None:
        """Evict batches over the limit: readings before reports, and never the newest report."""
        while self._used > self.limit:
            if batches := self._sizes[BATCHES]:
                kind = batches
            elif len(self._sizes[FAULTS]) > 1:
                kind = self._sizes[FAULTS]
            else:
                return
            path = next(iter(kind))
            _unlink(path)
            self._used -= kind.pop(path)
            self.dropped += 1


def _unlink(path: Path) -> None:
    """Remove a file; one that cannot be removed is listed again at the next start."""
    with suppress(OSError):
        path.unlink()


def _keep_newest(newest: Path, limit: int) -> None:
    """Remove the oldest batches that exceed the limits of number and size."""
    others = [path for path in _list_batches(newest.parent)[0] if path != newest]
    sizes = {path: path.stat() for path in others}
    used, count = newest.stat().st_size, 1
    for path in sorted(others, key=lambda path: (sizes[path].st_mtime_ns, path), reverse=True):
        used, count = used + sizes[path].st_size, count + 1
        if used > limit or count > _MAX_REFUSED_FILES:
            _unlink(path)


def _list_batches(folder: Path) -> tuple[dict[Path, int], list[Path]]:
    """Return the sizes of the batches in a folder, in order, and the other files in it.

    Stale temporary files of a killed process are removed.
    """
    if not folder.is_dir():
        return {}, [folder] if folder.exists() else []
    strays, sizes = [], {}
    for path in sorted(folder.iterdir()):
        if re.fullmatch(r"\..*\.tmp", path.name):
            _unlink(path)
        elif re.fullmatch(rf"\d{{{_DIGITS}}}\.json", path.name) and path.is_file():
            sizes[path] = path.stat().st_size
        else:
            strays.append(path)
    return sizes, strays
