"""Cost of each stage of a job, progress bars, and notes to the user."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from forewarn.features.time_units import SECONDS_PER_MINUTE
from forewarn.pipelines.runtime.terminal import escape_text

__all__ = ["JobCosts", "StageCost", "Stages", "TimeRemaining", "note", "progress_bar"]

_NOTE_EVERY = 60.0  # seconds

# Linux reports the peak in KiB, macOS in bytes.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def _peak_rss() -> int:
    """Return the peak memory of this program, bytes."""
    with suppress(OSError):  # on Linux, `getrusage` starts with the peak of the parent process
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


@dataclass(frozen=True, slots=True)
class StageCost:
    """The cost of a stage; the peak is that of the process so far."""

    name: str
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class JobCosts:
    """The cost of a job, by stage and in total."""

    stages: Sequence[StageCost] = ()
    seconds: float = 0.0
    peak_rss_bytes: int = 0


@dataclass(slots=True)
class Stages:
    """Measures seconds, CPU seconds and peak memory of named stages; equal names are summed."""

    seconds: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the enclosed block."""
        start, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            # Other processes affect the wall time, but hardly the CPU time.
            self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - cpu
            self.peak[name] = self._peak_so_far()

    def figures(self) -> JobCosts:
        """Return the costs for a report; the peaks are those of the process so far."""
        stages = [
            StageCost(name, round(seconds, 3), round(self.cpu[name], 3), self.peak[name])
            for name, seconds in self.seconds.items()
        ]
        total = round(time.perf_counter() - self.started, 3)
        return JobCosts(stages, total, self._peak_so_far())

    def _peak_so_far(self) -> int:
        """Return the peak memory; the system's value can decrease by some pages."""
        return max([_peak_rss(), *self.peak.values()])


def progress_bar(total: int, what: str, unit: str) -> tqdm[Any]:
    """Return a progress bar on stderr, shown only on a terminal."""
    return tqdm(total=total, desc=what, unit=unit, disable=None, leave=False)


@dataclass(slots=True)
class TimeRemaining:
    """Notes the remaining time of a job where no progress bar is shown, as in a log.

    A job of less than a minute notes nothing.

    Attributes
    ----------
    total : int
        Steps of the job.
    what : str
        Name of the steps, in the plural.
    clock : callable
        Returns seconds.
    done, worked : int
        Finished steps, and those of them that took time.
    """

    total: int
    what: str
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    worked: int = 0
    _started: float = field(init=False)
    _noted: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self._started = self._noted = self.clock()

    def step(self, *, worked: bool = True) -> None:
        """Count a step; `worked` is False for one finished before the job started."""
        now = self.clock()
        self.done, self.worked = self.done + 1, self.worked + worked
        if not worked:
            self._started = self._noted = now
        elif now - self._noted >= _NOTE_EVERY and not sys.stderr.isatty():
            minutes = round(
                (now - self._started) / self.worked * (self.total - self.done) / SECONDS_PER_MINUTE
            )
            few = {0: "less than a minute", 1: "1 minute"}
            left = few.get(minutes, f"{minutes} minutes")
            note(f"{self.done} of {self.total} {self.what} done, {left} left")
            self._noted = now


def note(text: str) -> None:
    """Print a note to the user on stderr."""
    tqdm.write(f"note: {escape_text(text)}", file=sys.stderr)
