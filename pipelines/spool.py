"""What an agent has to send: on disk, fault reports first, each kind in order."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Spool", "write_whole"]

FAULTS, BATCHES = "1-faults", "2-batches"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, also after a loss of power."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(slots=True)
class Spool:
    """A folder of batches that wait to be sent.

    Attributes
    ----------
    folder : Path
    limit : int
        Bytes; beyond it the oldest readings give way, fault reports never.
    dropped : int
        Batches that gave way.
    """

    folder: Path
    limit: int
    dropped: int = 0
    _next: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._next = 1 + max((int(path.stem) for path in self.waiting()), default=0)

    def put(self, batch: Mapping[str, Any], *, fault: bool = False) -> Path:
        """Keep a batch until it is sent."""
        with self._lock:
            name = f"{self._next:015d}.json"
            self._next += 1
            path = self.folder / (FAULTS if fault else BATCHES) / name
            write_whole(path, json.dumps(batch, separators=(",", ":")).encode())
            self._give_way()
        return path

    def waiting(self) -> list[Path]:
        """Return what is to be sent, in the order to send it."""
        return [
            p for kind in (FAULTS, BATCHES) for p in sorted((self.folder / kind).glob("*.json"))
        ]

    def set_aside(self, path: Path) -> None:
        """Keep what a collector refused where a person can look at it."""
        aside = self.folder / "refused"
        aside.mkdir(parents=True, exist_ok=True)
        path.replace(aside / path.name)

    def _give_way(self) -> None:
        batches = [(path, _size(path)) for path in sorted((self.folder / BATCHES).glob("*.json"))]
        used = sum(size for _, size in batches)
        for path, size in batches[:-1]:
            if used <= self.limit:
                return
            path.unlink(missing_ok=True)
            used -= size
            self.dropped += 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # it was sent meanwhile
        return 0
