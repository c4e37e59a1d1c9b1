"""Timelines: records combined with the failures known at one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.failures import Failures
from forewarn.features.records.hourly_sums import HourlyGrid, HourRange
from forewarn.features.records.record_table import Records

__all__ = ["Fleet", "FleetSlice", "InstanceEnds", "Timeline", "build_timeline"]


class Lives(NamedTuple):
    """Periods that start with a repair, sorted by GPU and time.

    Attributes
    ----------
    row : ndarray of shape (n,), int64
        First record of each period.
    repaired : ndarray of shape (n,), int64
        Time of the repair.
    """

    row: npt.NDArray[np.int64]
    repaired: npt.NDArray[np.int64]


class InstanceEnds(NamedTuple):
    """Last records of instances, sorted by GPU and time.

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
    """The timeline of some GPUs of a fleet, with their ascending numbers in the fleet."""

    timeline: Timeline
    gpu: npt.NDArray[np.int64]


class Fleet(Protocol):
    """A fleet as of a moment, whose records need not fit into memory at once.

    All slices share the codes of their texts and the range of hours.
    """

    @property
    def serials(self) -> tuple[str, ...]:
        """The sorted serials of all GPUs."""
        ...

    @property
    def failures(self) -> Failures:
        """One row per failure, by GPU of the fleet and time."""
        ...

    @property
    def n_slices(self) -> int:
        """The number of slices."""
        ...

    def slices(self) -> Iterator[FleetSlice]:
        """Read slice after slice without caching."""
        ...

    def some_gpus(self, gpu: Collection[int], columns: Collection[str]) -> Fleet:
        """Return a fleet with at least the given GPUs and columns of numbers."""
        ...


@dataclass(frozen=True)
class Timeline:
    """Records of a span with the known failures: a `Fleet` of one slice.

    Attributes
    ----------
    records : Records
    failures : Failures
        One row per failure, by GPU and time.
    bounds : ndarray of shape (n_gpus + 1,)
        First row of each GPU.
    alive : ndarray of shape (n,), bool
        The GPU is not failed at this row.
    breaks : ndarray, int64
        Sorted rows at which a failure or a repair ends a series.
    lives : Lives
    hours : HourRange or None
        Of the whole fleet if this is a slice.
    """

    records: Records
    failures: Failures
    bounds: npt.NDArray[np.int64]
    alive: npt.NDArray[np.bool_]
    breaks: npt.NDArray[np.int64]
    lives: Lives
    hours: HourRange | None = None

    @property
    def serials(self) -> tuple[str, ...]:
        """The sorted serials of all GPUs."""
        return self.records.serials

    @property
    def n_slices(self) -> int:
        """Always 1."""
        return 1

    def slices(self) -> Iterator[FleetSlice]:
        """Yield the timeline itself."""
        yield FleetSlice(self, np.arange(len(self.serials)))

    def some_gpus(self, gpu: Collection[int], columns: Collection[str]) -> Fleet:
        """Return the timeline itself, which has all GPUs and columns."""
        del gpu, columns
        return self

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Whether each row is valid: not failed and not filled."""
        return self.alive & ~self.records.filled

    def ends(
        self, window_records: int, step_records: int, since: int | None = None
    ) -> InstanceEnds:
        """Return the rows at which instances end.

        The first instance of a series ends as soon as the series has `window_records` records, and
        the next ones every `step_records` records. An end at a filled row moves to the next row.

        Parameters
        ----------
        window_records : int
            Records of an instance, within one unbroken series.
        step_records : int
            Records between two ends.
        since : int, optional
            Only ends at or after this time.
        """
        records, due = self.records, np.empty(len(self.records), dtype=np.bool_)
        first = int(np.iinfo(np.int64).min) if since is None else since
        keys = records.time, self.alive, records.filled
        _mark_ends(*keys, self.position, (window_records, step_records), first, due)
        row = np.flatnonzero(due)
        return InstanceEnds(row, records.gpu[row], records.time[row])

    @property
    def position(self) -> npt.NDArray[np.int32]:
        """Number of previous records in the unbroken series of each record."""
        position = np.empty(len(self.records), dtype=np.int32)
        broken = np.full(len(self.records), False)
        broken[self.breaks] = True
        keys = self.records.gpu, self.records.time, self.alive
        _count_up(*keys, broken, self.records.interval, position)
        return position

    def life_start(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the last repair of each row's GPU, or its first record if there is none.

        Parameters
        ----------
        rows : ndarray of shape (n,)
        """
        records = self.records
        gpu = records.gpu[rows]
        start = records.time[self.bounds[gpu]]
        latest = np.searchsorted(self.lives.row, rows, side="right") - 1
        later = np.flatnonzero(latest >= 0)
        of_life = records.gpu[self.lives.row[latest[later]]]
        later = later[of_life == gpu[later]]
        start[later] = np.maximum(start[later], self.lives.repaired[latest[later]])
        return start

    @cached_property
    def grid(self) -> HourlyGrid:
        """The hourly grid of the valid rows."""
        return HourlyGrid.from_records(self.records, self.counted, self.hours)

    def rows_before_failures(self) -> npt.NDArray[np.int64]:
        """Return the last row before each failure; -1 if there is none."""
        failures = self.failures
        rows = self.records.rows_from(failures.gpu, failures.failed_at)
        return np.where(rows > self.bounds[failures.gpu], rows - 1, -1)


def build_timeline(records: Records, failures: Failures) -> Timeline:
    """Combine records and failures into a timeline as of the end of the records.

    Parameters
    ----------
    records : Records
        Of the requested span; they end before the moment of evaluation.
    failures : Failures
        All failures known at that moment, including those before the records.

    Notes
    -----
    Counters restart after a repair, so the first increase after a repair is unknown.
    """
    failures, bounds = failures.episodes(), records.gpu_bounds()
    down = records.rows_from(failures.gpu, failures.failed_at)
    up = records.rows_from(failures.gpu, failures.repaired_at)
    end = bounds[failures.gpu + 1]
    breaks = np.unique(np.concatenate([down[down < end], up[up < end]]))
    alive = ~records.failed
    for first, last in zip(down.tolist(), up.tolist(), strict=True):
        alive[first:last] = False
    lives = Lives(up[up < end], failures.repaired_at[up < end])
    restarts = breaks[alive[breaks]]
    # The increase of a filled record is 0; the unknown increase belongs to the next record.
    records = replace(records, counter_restarts=restarts + records.filled[restarts])
    return Timeline(records, failures, bounds, alive, breaks, lives)


@compiled
def _count_up(
    gpu: npt.NDArray[np.int32],
    time: npt.NDArray[np.int64],
    alive: npt.NDArray[np.bool_],
    broken: npt.NDArray[np.bool_],
    interval: int,
    position: npt.NDArray[np.int32],
) -> None:
    """Count the previous records in the unbroken series of each record."""
    for row in range(len(gpu)):
        goes_on = row > 0 and not broken[row] and gpu[row] == gpu[row - 1]
        goes_on = goes_on and alive[row] and alive[row - 1]
        goes_on = goes_on and (time[row] - time[row - 1]) * 2 < 3 * interval
        position[row] = position[row - 1] + 1 if goes_on else 0


@compiled
def _mark_ends(
    time: npt.NDArray[np.int64],
    alive: npt.NDArray[np.bool_],
    filled: npt.NDArray[np.bool_],
    position: npt.NDArray[np.int32],
    length_and_step: tuple[int, int],
    since: int,
    ends: npt.NDArray[np.bool_],
) -> None:
    length, step = length_and_step
    owed = False  # an end postponed by a filled record
    for row in range(len(time)):
        past = position[row] - (length - 1)
        late = owed and past > 0
        due = past >= 0 and past % step == 0 and alive[row]
        owed = due and filled[row]
        ends[row] = ((due and not owed) or late) and time[row] >= since
