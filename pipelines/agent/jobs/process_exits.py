"""How training processes end: their exit codes, though they are no children of ours."""

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
)  # fields of /proc/PID/stat behind the name of the process
_GET_INFO, _INFO_EXIT = 0xC040FF0B, 1 << 3  # PIDFD_GET_INFO of 64 bytes; linux/pidfd.h, from 6.15
_INFO = struct.Struct("=QQ11Ii")
_POLL_MILLISECONDS = 500  # milliseconds until a process that came later is waited for, too


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """The end of a training process.

    Attributes
    ----------
    process : JobProcess
    code : int or None
        Below 0 the signal that ended it; None where nobody tells: its parent took the code before
        us, and the kernel is older than 6.15.
    time : int
        Nanoseconds since 1970 UTC.
    """

    process: JobProcess
    code: int | None
    time: int


@dataclass(slots=True)
class ExitWatcher:
    """Waits for the ends of processes; a descriptor of each is held until then.

    Parameters
    ----------
    clock : Clock
    proc : Path
    """

    clock: Clock
    proc: Path = Path("/proc")
    _followed: dict[int, JobProcess] = field(default_factory=dict)  # by descriptor
    _ended: list[ProcessExit] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, process: JobProcess) -> None:
        """Begin to wait for a process, if it is not waited for yet."""
        with self._lock:
            known = {(other.pid, other.start) for other in self._followed.values()}
        if (process.pid, process.start) in known:
            return
        with suppress(OSError, IndexError, ValueError):  # it has ended, or there are no descriptors
            number = os.pidfd_open(process.pid)
            if int(stat_fields(self.proc / str(process.pid))[_STAT_START_TIME]) != process.start:
                os.close(number)  # another process has got its number
                return
            with self._lock:
                self._followed[number] = process

    def watch(self, stop: threading.Event) -> None:
        """Note each end when it comes, until an event: who was first tells who began it."""
        while not stop.is_set():
            self._poll(_POLL_MILLISECONDS)

    def ended(self) -> list[ProcessExit]:
        """Return who ended since the last call."""
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
        """Return the exit code of a process, before its parent takes it or after."""
        for _ in range(2):  # it may be taken between the two questions
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
