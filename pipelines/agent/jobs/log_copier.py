"""Copies of the logs of training processes in the folder of their job."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from forewarn.pipelines.agent.jobs.training_processes import JobProcess
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["LogCopier"]

_STREAMS = {1: "stdout", 2: "stderr"}
_ATTEMPT = re.compile(r"attempt_\d{1,6}")
_CHUNK_BYTES = 1 << 20
_MAX_ERROR_BYTES = 1 << 22
Inode = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Source:
    process: JobProcess
    stream: str
    inode: Inode
    opened: Path  # path below /proc, valid even if the file was renamed
    path: Path


@dataclass(slots=True)
class LogCopier:
    """Incremental copies of logs.

    Parameters
    ----------
    machine : str
    most : int
        Maximum size of a copy in bytes; the end of a longer log is kept.
    proc : Path
    """

    machine: str
    most: int
    proc: Path = Path("/proc")
    _offsets: dict[tuple[Path, Inode], int] = field(default_factory=dict)
    _last: dict[tuple[int, int], list[tuple[_Source, Path]]] = field(default_factory=dict)

    def copy(self, processes: Sequence[JobProcess], folder: Path) -> float | None:
        """Copy new output of all processes of a job; return the time of the last write.

        Parameters
        ----------
        processes : sequence of JobProcess
        folder : Path
            Folder `logs` of the job.

        Returns
        -------
        float or None
            Seconds since 1970 UTC; None if no process writes to a file.
        """
        sources = [source for process in processes for source in self._sources(process, folder)]
        ranks = Counter({source.inode: 0 for source in sources})
        ranks.update(inode for inode, _ in {(s.inode, s.process.rank) for s in sources})
        written = []
        for process in processes:
            self._last[process.pid, process.start] = []
        for source in sources:
            target = self._target(source, folder, is_shared=ranks[source.inode] > 1)
            self._last[source.process.pid, source.process.start].append((source, target))
            with suppress(OSError):
                written.append(self._append(source, target))
            if _ATTEMPT.fullmatch(source.path.parent.parent.name):
                _copy_error(source, target.with_name("error.json"))
        return max(written, default=None)

    def finish(self, process: JobProcess, folder: Path) -> bool:
        """Copy the remaining output of a process that has ended.

        Returns
        -------
        bool
            Whether torchrun's worker left an exception.
        """
        has_error = False
        for source, target in self._last.pop((process.pid, process.start), []):
            if target.is_relative_to(folder):
                with suppress(OSError):
                    self._append(source, target, by_name=True)
                error = target.with_name("error.json")
                if _ATTEMPT.fullmatch(source.path.parent.parent.name):
                    _copy_error(source, error)
                    has_error |= error.exists()
        return has_error

    def _sources(self, process: JobProcess, folder: Path) -> Iterator[_Source]:
        """Yield the regular files that a process writes to, except our copies."""
        seen = set[Inode]()
        for number, stream in _STREAMS.items():
            opened = self.proc / str(process.pid) / "fd" / str(number)
            with suppress(OSError):
                status, path = opened.stat(), opened.readlink()
                inode = status.st_dev, status.st_ino
                is_file = stat.S_ISREG(status.st_mode) and not path.is_relative_to(folder)
                if is_file and inode not in seen:
                    seen.add(inode)
                    yield _Source(process, stream, inode, opened, path)

    def _target(self, source: _Source, folder: Path, *, is_shared: bool) -> Path:
        attempt, local = source.path.parent.parent.name, source.path.parent.name
        if _ATTEMPT.fullmatch(attempt) and local.isdecimal():
            return folder / self.machine / attempt / local / f"{source.stream}.log"
        if is_shared:
            return folder / self.machine / f"{source.path.stem or 'output'}.log"
        return folder / f"{source.stream}_{source.process.rank}.log"

    def _append(self, source: _Source, target: Path, *, by_name: bool = False) -> float:
        """Copy new output; use a path only if it is still the file that the process had open."""
        flags = os.O_RDONLY | os.O_NONBLOCK | (os.O_NOFOLLOW if by_name else 0)
        with os.fdopen(os.open(source.path if by_name else source.opened, flags), "rb") as stream:
            status = os.fstat(stream.fileno())
            if (status.st_dev, status.st_ino) != source.inode:
                raise FileNotFoundError(source.path)
            copied = target.stat().st_size if target.exists() else 0
            offset = self._offsets.get((target, source.inode), copied)
            if offset > status.st_size:
                offset = 0  # truncated, or another file
            stream.seek(max(offset, status.st_size - self.most))
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as copy:
                while part := stream.read(_CHUNK_BYTES):
                    copy.write(part)
            self._offsets[target, source.inode] = stream.tell()
        if target.stat().st_size > self.most:
            _truncate_head(target, self.most // 2)
        return status.st_mtime


def _truncate_head(target: Path, length: int) -> None:
    """Keep the end of a copy, starting at a whole line."""
    with target.open("rb") as stream:
        stream.seek(-length, os.SEEK_END)
        stream.readline()
        rest = stream.read()
    with replacing(target) as temporary:
        temporary.write_bytes(rest)


def _copy_error(source: _Source, target: Path) -> None:
    """Copy the exception that torchrun's worker wrote next to its log, if its user owns it."""
    with suppress(OSError):
        path = source.path.with_name("error.json")
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(number, "rb") as stream:
            status = os.fstat(number)
            is_own = stat.S_ISREG(status.st_mode) and status.st_uid == source.process.uid
            if is_own and status.st_size <= _MAX_ERROR_BYTES:
                target.write_bytes(stream.read(_MAX_ERROR_BYTES))
