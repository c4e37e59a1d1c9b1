"""Records and failures put together as they stood at one moment: series, lives, alive rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.failures import Failures
from forewarn.features.records.hourly_sums import HourlyGrid
from forewarn.features.records.hours import Hours
from forewarn.features.records.line import Line
from forewarn.features.records.spillable_array import ArrayAllocator, SpillableArray
from forewarn.features.records.table import Records

__all__ = ["Ends", "Fleet", "FleetSlice", "Timeline", "lay_out"]


class Lives(NamedTuple):
    """The lives that begin with a repair, by GPU and time.

    Attributes
    ----------
    row : ndarray of shape (n,), int64
        First record of each.
    repaired : ndarray of shape (n,), int64
        When it began.
    """

    row: npt.NDArray[np.int64]
    repaired: npt.NDArray[np.int64]


class Ends(NamedTuple):
    """Where instances end, by GPU and time.

    Attributes
    ----------
    row : ndarray of shape (n,), int64
    gpu : ndarray of shape (n,), int32
    time : ndarray of shape (n,), int64
    """

    row: npt.NDArray[np.int64]
    gpu: npt.NDArray[np.int32]
    time: npt.NDArray[np.int64]


class FleetSlice(NamedTuple):
    """Some GPUs of a fleet: their timeline, and the number that each has in the fleet, rising."""

    timeline: Timeline
    gpu: npt.NDArray[np.int64]


class Fleet(Protocol):
    """A fleet as it stood at a moment, whose records need not be in memory all at once.

    All slices have the same texts under the same numbers, and the same hours.
    """

    @property
    def serials(self) -> tuple[str, ...]:
        """The serials of all GPUs, sorted."""
        ...

    @property
    def failures(self) -> Failures:
        """One row per failure, by GPU of the fleet and time."""
        ...

    @property
    def n_slices(self) -> int:
        """How many slices there are."""
        ...

    def slices(self) -> Iterator[FleetSlice]:
        """Read one slice after another; none is kept."""
        ...

    def allocator(self) -> ArrayAllocator:
        """Return the allocator of arrays that outlive a slice: they grow with the fleet."""
        ...


@dataclass(frozen=True)
class Timeline:
    """Records of a span with all that was known of failures: a `Fleet` of one slice.

    Attributes
    ----------
    records : Records
        Cut where a failure or a repair breaks a series; while a GPU is failed it is not alive.
    failures : Failures
        One row per failure, by GPU and time.
    bounds : ndarray of shape (n_gpus + 1,)
        First row of every GPU.
    breaks : ndarray, int64
        Sorted rows at which a failure or a repair breaks a series.
    lives : Lives
    hours : Hours or None
        Of the whole fleet, if this is one slice of it.
    """

    records: Records
    failures: Failures
    bounds: npt.NDArray[np.int64]
    breaks: npt.NDArray[np.int64]
    lives: Lives
    hours: Hours | None = None

    @property
    def serials(self) -> tuple[str, ...]:
        """The serials of all GPUs, sorted."""
        return self.records.serials

    @property
    def n_slices(self) -> int:
        """One."""
        return 1

    def slices(self) -> Iterator[FleetSlice]:
        """Yield itself."""
        yield FleetSlice(self, np.arange(len(self.serials)))

    def allocator(self) -> ArrayAllocator:
        """Return the allocator of arrays in memory, where all records are."""
        return SpillableArray

    def ends(self, window_records: int, step_records: int, since: int | None = None) -> Ends:
        """Return where instances end; one due at a filled row may end at the next.

        Parameters
        ----------
        window_records : int
            Records in an instance, of one unbroken series.
        step_records : int
            Records between two ends.
        since : int, optional
            Only those at or after it.
        """
        line, interval = self.records.line, self.records.interval
        first = int(line.time.min(initial=2**62))
        since = first if since is None else max(since, first)
        # No series has more: they are due from the first whole window on, `step_records` apart.
        most = min(line.n // min(window_records, step_records), line.most_rows_from(since))
        row, time = np.empty((2, most), dtype=np.int64)
        room = Ends(row, np.empty(most, dtype=np.int32), time)
        n = _find_ends(line, self.breaks, interval, (window_records, step_records), since, room)
        return Ends(room.row[:n], room.gpu[:n], room.time[:n])

    @property
    def alive(self) -> npt.NDArray[np.bool_]:
        """Which rows are not those of a failed GPU, made anew each time."""
        return self.records.line.of_each(self.records.line.alive)

    @property
    def position(self) -> npt.NDArray[np.int32]:
        """Number of records before each in its unbroken series, counted anew each time."""
        line = self.records.line
        position = np.full(line.n, 0, dtype=np.int32)
        _count_up(line, self.breaks, self.records.interval, position)
        return position

    def life_start(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return since when the GPU of each row lives: its last repair, or its first record here.

        Parameters
        ----------
        rows : ndarray of shape (n,)
        """
        line = self.records.line
        gpu = line.gpu[line.run_at(rows)]
        start = line.time[line.run_bounds(len(self.serials))[gpu]]
        latest = np.searchsorted(self.lives.row, rows, side="right") - 1
        later = np.flatnonzero(latest >= 0)
        of_life = line.gpu[line.run_at(self.lives.row[latest[later]])]
        later = later[of_life == gpu[later]]
        start[later] = np.maximum(start[later], self.lives.repaired[latest[later]])
        return start

    @cached_property
    def grid(self) -> HourlyGrid:
        """The hourly sums of the rows that count: alive and not filled in."""
        return HourlyGrid.of(self.records, self.hours)

    def narrowed(self, rows: npt.NDArray[np.int64]) -> tuple[Timeline, npt.NDArray[np.int64]]:
        """Return a timeline of a few rows only, with the hours of all, and which rows those are.

        The first and the last row of each GPU stay, those at which a life begins and those before
        a failure: so whatever is asked of `rows` has the same answer.

        Parameters
        ----------
        rows : ndarray, int64
            Whole windows.
        """
        records, bounds = self.records, self.bounds
        seen = np.flatnonzero(np.diff(bounds))
        ends = [bounds[seen], bounds[seen + 1] - 1, self.lives.row, self.rows_before_failures()]
        # Marked, not sorted: that is several times as fast.
        stays = np.full(len(records), False)
        for some in (rows.ravel(), *ends):
            stays[some[some >= 0]] = True
        left = np.flatnonzero(stays)
        few = replace(records, line=records.line.take(left))
        lives = Lives(np.searchsorted(left, self.lives.row), self.lives.repaired)
        breaks = np.searchsorted(left, self.breaks)
        narrow = Timeline(few, self.failures, few.gpu_bounds(), breaks, lives)
        narrow.__dict__["grid"] = replace(self.grid, records=few)
        return narrow, left

    def rows_before_failures(self) -> npt.NDArray[np.int64]:
        """Return the last row of each failure's GPU before it failed, -1 where there is none."""
        failures = self.failures
        rows = _rows_from(self.records, failures.gpu, failures.failed_at)
        return np.where(rows > self.bounds[failures.gpu], rows - 1, -1)


def _rows_from(
    records: Records, gpu: npt.NDArray[np.int32], moment: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the first row of each GPU at or after a moment (the GPU's end if there is none)."""
    return records.line.rows_from(gpu, moment, len(records.serials))


def _cut_at_failures(
    records: Records, failures: Failures, bounds: npt.NDArray[np.int64]
) -> tuple[Line, npt.NDArray[np.int64], Lives]:
    """Return the line with what is alive, where a series breaks, and the lives after a repair."""
    down = _rows_from(records, failures.gpu, failures.failed_at)
    up = _rows_from(records, failures.gpu, failures.repaired_at)
    end = bounds[failures.gpu + 1]
    breaks = np.unique(np.concatenate([down[down < end], up[up < end]]))
    line = records.line.cut(breaks)
    alive = ~line.failed
    for first, last in np.searchsorted(line.start, np.stack([down, up], axis=1)).tolist():
        alive[first:last] = False
    lives = Lives(up[up < end], failures.repaired_at[up < end])
    return line._replace(alive=alive), breaks, lives


def lay_out(records: Records, failures: Failures) -> Timeline:
    """Lay records and failures out as they stood when nothing later existed.

    Parameters
    ----------
    records : Records
        Of the span that is looked at; they end before the moment of looking.
    failures : Failures
        Known at that moment, older than the records too.

    Notes
    -----
    After a repair counters start anew: the first increase of a life is missing.
    """
    failures, bounds = failures.episodes(), records.gpu_bounds()
    line, breaks, lives = _cut_at_failures(records, failures, bounds)
    run = line.run_at(breaks)
    reborn = breaks[line.alive[run]]
    # A filled record has gained nothing; what was gained unseen stands at the one after it.
    reborn = np.sort(line.order_at(reborn + line.filled[run[line.alive[run]]]))
    records = replace(records, line=line, reborn=reborn.astype(np.int64))
    return Timeline(records, failures, bounds, breaks, lives)


@compiled
def _count_up(
    line: Line, breaks: npt.NDArray[np.int64], interval: int, position: npt.NDArray[np.int32]
) -> None:
    """Count the records before each one in its unbroken series."""
    passed = 0  # of the breaks
    for run in range(len(line.gpu)):
        for row in range(line.start[run], line.start[run + 1]):
            while passed < len(breaks) and breaks[passed] < row:
                passed += 1
            broken = passed < len(breaks) and breaks[passed] == row
            if not broken and _goes_on(line, run, row, interval):
                position[row] = position[row - 1] + 1


@compiled
def _goes_on(line: Line, run: int, row: int, interval: int) -> bool:
    """Tell whether a record, of a run, belongs to the series of the one before it."""
    if row == line.start[run]:
        if run == 0 or line.gpu[run] != line.gpu[run - 1] or not line.alive[run - 1]:
            return False
        if len(line.times):
            before = line.times[row - 1]
        else:
            before = line.time[run - 1] + line.step[run - 1] * (row - 1 - line.start[run - 1])
        apart = line.time[run] - before
    elif len(line.times):
        apart = line.times[row] - line.times[row - 1]
    else:
        apart = line.step[run]
    return bool(line.alive[run] and apart * 2 < 3 * interval)


@compiled
def _find_ends(
    line: Line,
    breaks: npt.NDArray[np.int64],
    interval: int,
    length_and_step: tuple[int, int],
    since: int,
    room: Ends,
) -> int:
    """Put the records at which instances end into arrays; return how many.

    One is due at the first record of a series with `length` records before or at it, and at every
    step-th from it on.
    """
    length, step = length_and_step
    n = position = passed = 0
    owed = False  # by a filled record
    for run in range(len(line.gpu)):
        row, end, apart = line.start[run], line.start[run + 1], line.step[run]
        even = len(line.times) == 0 and 0 < 2 * apart < 3 * interval
        even = even and line.alive[run] and not line.filled[run]
        while row < end:
            while passed < len(breaks) and breaks[passed] < row:
                passed += 1
            broken = passed < len(breaks) and breaks[passed] == row
            goes_on = not broken and _goes_on(line, run, row, interval)
            position = position + 1 if goes_on else 0
            time = line.times[row] if len(line.times) else line.time[run]
            if len(line.times) == 0:
                time += apart * (row - line.start[run])
            late = owed and position >= length
            past = position - (length - 1)
            due = past >= 0 and past % step == 0 and line.alive[run]
            owed = due and line.filled[run]
            if ((due and not owed) or late) and time >= since:
                room.row[n], room.gpu[n], room.time[n] = row, line.gpu[run], time
                n += 1
            row += 1
            # Within an even run nothing happens until the next one is due that is asked for.
            if even and row < end:
                idle = -past - 1 if past < 0 else step - 1 - past % step
                idle = min(max(idle, -((time + apart - since) // apart)), end - row)
                position += idle
                row += idle
    return n
