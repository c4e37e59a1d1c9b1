"""Records and failures put together as they stood at one moment: series, lives, alive rows."""

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


class InstanceEnds(NamedTuple):
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

    def some_gpus(self, gpu: Collection[int], columns: Collection[str]) -> Fleet:
        """Return a fleet that has some GPUs and columns of numbers, and may have others."""
        ...


@dataclass(frozen=True)
class Timeline:
    """Records of a span with all that was known of failures: a `Fleet` of one slice.

    Attributes
    ----------
    records : Records
    failures : Failures
        One row per failure, by GPU and time.
    bounds : ndarray of shape (n_gpus + 1,)
        First row of every GPU.
    alive : ndarray of shape (n,), bool
        Which rows are not those of a failed GPU.
    breaks : ndarray, int64
        Sorted rows at which a failure or a repair breaks a series.
    lives : Lives
    hours : Hours or None
        Of the whole fleet, if this is one slice of it.
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
        """The serials of all GPUs, sorted."""
        return self.records.serials

    @property
    def n_slices(self) -> int:
        """One."""
        return 1

    def slices(self) -> Iterator[FleetSlice]:
        """Yield itself."""
        yield FleetSlice(self, np.arange(len(self.serials)))

    def some_gpus(self, gpu: Collection[int], columns: Collection[str]) -> Fleet:
        """Return itself, which has all of them."""
        del gpu, columns
        return self

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Which rows count: alive and not filled in."""
        return self.alive & ~self.records.filled

    def ends(
        self, window_records: int, step_records: int, since: int | None = None
    ) -> InstanceEnds:
        """Return where instances end; one due at a filled row may end at the next.

        One is due at the first record of a series with so many records before or at it, and at
        every step-th from it on.

        Parameters
        ----------
        window_records : int
            Records in an instance, of one unbroken series.
        step_records : int
            Records between two ends.
        since : int, optional
            Only those at or after it.
        """
        records, due = self.records, np.empty(len(self.records), dtype=np.bool_)
        first = int(np.iinfo(np.int64).min) if since is None else since
        keys = records.time, self.alive, records.filled
        _mark_ends(*keys, self.position, (window_records, step_records), first, due)
        row = np.flatnonzero(due)
        return InstanceEnds(row, records.gpu[row], records.time[row])

    @property
    def position(self) -> npt.NDArray[np.int32]:
        """Number of records before each in its unbroken series, counted anew each time."""
        position = np.empty(len(self.records), dtype=np.int32)
        broken = np.full(len(self.records), False)
        broken[self.breaks] = True
        keys = self.records.gpu, self.records.time, self.alive
        _count_up(*keys, broken, self.records.interval, position)
        return position

    def life_start(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return since when the GPU of each row lives: its last repair, or its first record here.

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
        """The hourly sums of the rows that count."""
        return HourlyGrid.from_records(self.records, self.counted, self.hours)

    def rows_before_failures(self) -> npt.NDArray[np.int64]:
        """Return the last row of each failure's GPU before it failed, -1 where there is none."""
        failures = self.failures
        rows = self.records.rows_from(failures.gpu, failures.failed_at)
        return np.where(rows > self.bounds[failures.gpu], rows - 1, -1)


def build_timeline(records: Records, failures: Failures) -> Timeline:
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
    down = records.rows_from(failures.gpu, failures.failed_at)
    up = records.rows_from(failures.gpu, failures.repaired_at)
    end = bounds[failures.gpu + 1]
    breaks = np.unique(np.concatenate([down[down < end], up[up < end]]))
    alive = ~records.failed
    for first, last in zip(down.tolist(), up.tolist(), strict=True):
        alive[first:last] = False
    lives = Lives(up[up < end], failures.repaired_at[up < end])
    reborn = breaks[alive[breaks]]
    # A filled record has gained nothing; what was gained unseen stands at the one after it.
    records = replace(records, reborn=reborn + records.filled[reborn])
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
    """Count the records before each one in its unbroken series."""
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
    owed = False  # by a filled record
    for row in range(len(time)):
        past = position[row] - (length - 1)
        late = owed and past > 0
        due = past >= 0 and past % step == 0 and alive[row]
        owed = due and filled[row]
        ends[row] = ((due and not owed) or late) and time[row] >= since
