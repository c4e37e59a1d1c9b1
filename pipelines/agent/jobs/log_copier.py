"""Copies of the logs of training processes in the folder of their job."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from forewarn.features.diagnosis.unseen_outputs import UnseenOutput
from forewarn.pipelines.agent.jobs.output_files import OutputFinder
from forewarn.pipelines.agent.jobs.reader_files import Inode, OutputFile
from forewarn.pipelines.agent.jobs.training_processes import JobProcess
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["CopiedOutput", "LogCopier"]

_STREAMS = {1: "stdout", 2: "stderr"}
_ATTEMPT = re.compile(r"attempt_\d{1,6}")
_CHUNK_BYTES = 1 << 20
_MAX_ERROR_BYTES = 1 << 22
_POD_LOGS = Path("/var/log/pods")


@dataclass(frozen=True, slots=True)
class _Source:
    process: JobProcess
    stream: str
    file: OutputFile


@dataclass(frozen=True, slots=True)
class CopiedOutput:
    """What was seen of the output of a job's processes.

    Attributes
    ----------
    last_write : float or None
        Of any copied file, in seconds since 1970 UTC.
    unseen : tuple of UnseenOutput
    """

    last_write: float | None
    unseen: tuple[UnseenOutput, ...]

    def is_silent(self, now: float, limit: float) -> bool | None:
        """Return whether no process has written for `limit` seconds; None if that is unknown."""
        if self.last_write is not None and now - self.last_write < limit:
            return False
        is_hidden = any(not output.is_discarded for output in self.unseen)
        return None if is_hidden or self.last_write is None else True


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
    _outputs: OutputFinder = field(init=False)
    _offsets: dict[Path, tuple[Inode, int]] = field(default_factory=dict)
    _renamed: set[tuple[Path, Inode]] = field(default_factory=set)
    _last: dict[tuple[int, int], list[tuple[_Source, Path]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._outputs = OutputFinder(self.proc)

    def copy(self, processes: Sequence[JobProcess], folder: Path) -> CopiedOutput:
        """Copy new output of all processes of a job.

        Parameters
        ----------
        processes : sequence of JobProcess
        folder : Path
            Folder `logs` of the job.
        """
        self._outputs.start_pass()
        sources, unseen = self._sources(processes, folder)
        targets = self._targets(sources, folder)
        written = []
        for process in processes:
            self._last[process.pid, process.start] = []
        for source in sources:
            target = targets[source.file.inode]
            self._last[source.process.pid, source.process.start].append((source, target))
            with suppress(OSError):
                written.append(self._append(source.file.inode, source.file.opened, target))
            if _is_in_tree(target):
                self._copy_error(source, target)
        return CopiedOutput(max(written, default=None), tuple(unseen))

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
                for path in (source.file.opened, self._path(source)):
                    with suppress(OSError):
                        self._append(source.file.inode, path, target)
                if _is_in_tree(target):
                    self._copy_error(source, target)
                    has_error |= target.with_name("error.json").exists()
        return has_error

    def _sources(
        self, processes: Sequence[JobProcess], folder: Path
    ) -> tuple[list[_Source], list[UnseenOutput]]:
        """Return the files that processes write to, except our copies, and what is unseen."""
        sources: dict[tuple[int, Inode], _Source] = {}
        unseen = []
        for process in processes:
            for number, stream in _STREAMS.items():
                output = self._outputs.find(process, number)
                for file in output.files:
                    if not file.path.is_relative_to(folder):
                        key = process.pid, file.inode
                        sources.setdefault(key, _Source(process, stream, file))
                if output.reason:
                    row = UnseenOutput(process.rank, stream, output.kind, output.reason)
                    unseen.append(row)
        return list(sources.values()), unseen

    def _targets(self, sources: Sequence[_Source], folder: Path) -> dict[Inode, Path]:
        """Return the copy of each file; two files never have the same copy."""
        ranks: dict[Inode, set[int]] = {}
        for source in sources:
            ranks.setdefault(source.file.inode, set()).add(source.process.rank)
        targets: dict[Inode, Path] = {}
        for source in sources:
            inode = source.file.inode
            if inode not in targets:
                is_shared = source.file.is_console or len(ranks[inode]) > 1
                target = self._target(source, folder, is_shared=is_shared)
                if (folder, inode) in self._renamed or target in targets.values():
                    self._renamed.add((folder, inode))
                    target = folder / self.machine / f"{source.file.path.stem}-{inode[1]}.log"
                targets[inode] = target
        return targets

    def _target(self, source: _Source, folder: Path, *, is_shared: bool) -> Path:
        path = source.file.path
        attempt, local = path.parent.parent.name, path.parent.name
        own = folder / self.machine
        if _ATTEMPT.fullmatch(attempt) and local.isdecimal() and not source.file.is_console:
            return own / attempt / local / f"{source.stream}.log"
        if path.is_relative_to(_POD_LOGS):  # the names of pod and container tell who writes
            return own / path.relative_to(_POD_LOGS)
        if is_shared:
            return own / f"{path.stem or 'output'}.log"
        return folder / f"{source.stream}_{source.process.rank}.log"

    def _path(self, source: _Source) -> Path:
        """Return the present path of a file, which may lie in the file system of a container."""
        pids = [source.process.pid, *(pid for pid, _ in self._last)]
        for root in (Path("/"), *(self.proc / str(pid) / "root" for pid in pids)):
            path = root / str(source.file.path).lstrip("/")
            with suppress(OSError):
                status = path.lstat()
                if (status.st_dev, status.st_ino) == source.file.inode:
                    return path
        return source.file.path

    def _append(self, inode: Inode, path: Path, target: Path) -> float:
        """Copy new output; use a path only if it is still the file that the process had open."""
        is_link = path.is_relative_to(self.proc) and path.parent.name == "fd"
        flags = os.O_RDONLY | os.O_NONBLOCK | (0 if is_link else os.O_NOFOLLOW)
        with os.fdopen(os.open(path, flags), "rb") as stream:
            status = os.fstat(stream.fileno())
            if (status.st_dev, status.st_ino) != inode:
                raise FileNotFoundError(path)
            copied = target.stat().st_size if target.exists() else 0
            before, offset = self._offsets.get(target, (inode, copied))
            if before != inode or offset > status.st_size:
                offset = 0  # truncated, or another file
            stream.seek(max(offset, status.st_size - self.most))
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as copy:
                while part := stream.read(_CHUNK_BYTES):
                    copy.write(part)
            self._offsets[target] = inode, stream.tell()
        if target.stat().st_size > self.most:
            _truncate_head(target, self.most // 2)
        return status.st_mtime

    def _copy_error(self, source: _Source, target: Path) -> None:
        """Copy the exception that torchrun's worker wrote next to its log, if its user owns it."""
        path = self._path(source).with_name("error.json")
        with suppress(OSError):
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(number, "rb") as stream:
                status = os.fstat(number)
                is_own = stat.S_ISREG(status.st_mode) and status.st_uid == source.process.uid
                if is_own and status.st_size <= _MAX_ERROR_BYTES:
                    target.with_name("error.json").write_bytes(stream.read(_MAX_ERROR_BYTES))


def _is_in_tree(target: Path) -> bool:
    """Return whether a copy lies in torchrun's tree."""
    return _ATTEMPT.fullmatch(target.parent.parent.name) is not None


def _truncate_head(target: Path, length: int) -> None:
    """Keep the end of a copy, starting at a whole line."""
    with target.open("rb") as stream:
        stream.seek(-length, os.SEEK_END)
        stream.readline()
        rest = stream.read()
    with replacing(target) as temporary:
        temporary.write_bytes(rest)
