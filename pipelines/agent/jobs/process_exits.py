"""Exit codes of training processes that are not children of the agent."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from forewarn.pipelines.agent.jobs.training_processes import JobProcess, stat_fields
from forewarn.pipelines.runtime.clock import Clock

__all__ = ["ExitWatcher", "ProcessExit"]

_STAT_START_TIME, _STAT_EXIT_CODE = (
    19,
    49,
)  # fields of /proc/PID/stat after the process name
_GET_INFO, _INFO_EXIT = 0xC040FF0B, 1 << 3  # PIDFD_GET_INFO of 64 bytes; linux/pidfd.h, from 6.15
_INFO = struct.Struct("=QQ11Ii")
_POLL_MILLISECONDS = 500  # until newly followed processes are polled


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """Exit of a training process.

    Attributes
    ----------
    process : JobProcess
    code : int or None
        A negative code is the signal that ended it. None if unknown: the parent collected the code
        first and the kernel is older than 6.15.
    time : int
        Nanoseconds since 1970 UTC.
    """

    process: JobProcess
    code: int | None
    time: int


@dataclass(slots=True)
class ExitWatcher:
    """Waits for the exit of processes by means of process file descriptors.

    Parameters
    ----------
    clock : Clock
    proc : Path
    """

    clock: Clock
    proc: Path = Path("/proc")
    _followed: dict[int, JobProcess] = field(default_factory=dict)  # by file descriptor
    _ended: list[ProcessExit] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, process: JobProcess) -> None:
        """Start watching a process that is not watched yet."""
        with self._lock:
            known = {(other.pid, other.start) for other in self._followed.values()}
        if (process.pid, process.start) in known:
            return
        with suppress(OSError, IndexError, ValueError):  # it has ended, or pidfds are not supported
            number = os.pidfd_open(process.pid)
            if int(stat_fields(self.proc / str(process.pid))[_STAT_START_TIME]) != process.start:
                os.close(number)  # the process id was reused
                return
            with self._lock:
                self._followed[number] = process

    def watch(self, stop: threading.Event) -> None:
        """Record each exit when it occurs, until an event is set; the order matters."""
        while not stop.is_set():
            self._poll(_POLL_MILLISECONDS)

    def ended(self) -> list[ProcessExit]:
        """Return the exits since the last call."""
        self._poll(0)
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    def _poll(self, milliseconds: int) -> None:
        poll = select.poll()
        with self._lock:
            for number in self._followed:
                poll.register(number, select.POLLIN)
        for number, _ in poll.poll(milliseconds):
            now = self.clock.now()
            with self._lock:
                process = self._followed.pop(number, None)
                if process is not None:
                    self._ended.append(ProcessExit(process, self._code(number, process), now))
                    os.close(number)

    def _code(self, number: int, process: JobProcess) -> int | None:
        """Return the exit code of a process, whether or not its parent has collected it."""
        for _ in range(2):  # the parent may collect it between the two queries
            with suppress(OSError):
                answer = bytearray(_INFO.pack(_INFO_EXIT, *[0] * 13))
                fcntl.ioctl(number, _GET_INFO, answer)
                values = _INFO.unpack(answer)
                if values[0] & _INFO_EXIT:
                    return os.waitstatus_to_exitcode(values[-1])
            with suppress(OSError, IndexError, ValueError):
                fields = stat_fields(self.proc / str(process.pid))
                if fields[0] == "Z" and int(fields[_STAT_START_TIME]) == process.start:
                    return os.waitstatus_to_exitcode(int(fields[_STAT_EXIT_CODE]))
        return None
