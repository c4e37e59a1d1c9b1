"""Processes of this host that read pipes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from forewarn.pipelines.agent.jobs.process_descriptors import command_name, descriptors

__all__ = ["PipeReaders"]

_SCAN_PASSES = 6  # between two scans for a pipe without a reader


@dataclass(slots=True)
class PipeReaders:
    """Index of the processes that read a pipe.

    Parameters
    ----------
    proc : Path
    """

    proc: Path = Path("/proc")
    _readers: dict[str, list[int]] = field(default_factory=dict)
    _slurm: list[int] = field(default_factory=list)
    _searched: set[str] = field(default_factory=set)
    _passes: int = _SCAN_PASSES  # since the last scan

    def start_pass(self) -> None:
        """Note that time has passed, so that a pipe without a reader may be searched again."""
        self._passes += 1

    def find(self, pipe: str) -> list[int]:
        """Return the processes that read a pipe, given as its descriptors' target.

        All descriptors of the host are listed only for a pipe that was never searched, or once in
        six passes.
        """
        readers = [pid for pid in self._readers.get(pipe, ()) if self._reads(pid, pipe)]
        is_new = pipe not in self._searched
        is_listed = self._passes == 0 and _is_anonymous(pipe)
        self._searched.add(pipe)
        if readers or is_listed or not (is_new or self._passes >= _SCAN_PASSES):
            return readers
        self._scan()
        return self._readers.get(pipe, [])

    def slurm_processes(self, command: str) -> list[int]:
        """Return the processes of `srun`, or of the daemon `slurmd`."""
        return [pid for pid in self._slurm if command_name(self.proc / str(pid)) == command]

    def _reads(self, pid: int, pipe: str) -> bool:
        return any(
            item.is_read and item.target == pipe for item in descriptors(self.proc / str(pid))
        )

    def _scan(self) -> None:
        self._readers, self._slurm, self._passes = {}, [], 0
        for entry in os.scandir(self.proc):
            if not (entry.name.isascii() and entry.name.isdecimal()):
                continue
            pid = int(entry.name)
            if command_name(Path(entry.path)) in ("srun", "slurmd"):
                self._slurm.append(pid)
            for item in descriptors(self.proc / str(pid)):
                is_pipe = _is_anonymous(item.target) or item.target in self._searched
                if item.is_read and is_pipe:
                    readers = self._readers.setdefault(item.target, [])
                    if pid not in readers:
                        readers.append(pid)


def _is_anonymous(target: str) -> bool:
    return target.startswith("pipe:[")
