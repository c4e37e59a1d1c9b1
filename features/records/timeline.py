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
from forewarn.features.records.table import Records

__all__ = ["Fleet", "FleetSlice", "Timeline", "lay_out"]


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
        False while the GPU is failed.
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

    @property
    def position(self) -> npt.NDArray[np.int32]:
        """Number of records before each in its unbroken series, counted anew each time."""
        records = self.records
        position = np.full(len(records), 0, dtype=np.int32)
        keys = records.gpu, records.time, self.alive
        _count_up(keys, self.breaks, records.interval, position)
        return position

    def life_start(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return since when the GPU of each row lives: its last repair, or its first record here.

        Parameters
        ----------
        rows : ndarray of shape (n,)
        """
        gpu, time = self.records.gpu, self.records.time
        start = time[self.bounds[gpu[rows]]]
        latest = np.searchsorted(self.lives.row, rows, side="right") - 1
        later = np.flatnonzero(latest >= 0)
        later = later[gpu[self.lives.row[latest[later]]] == gpu[rows[later]]]
        start[later] = np.maximum(start[later], self.lives.repaired[latest[later]])
        return start

    @cached_property
    def grid(self) -> HourlyGrid:
        """The hourly sums of the rows that count: alive and not filled in."""
        return HourlyGrid.of(self.records, self.counted, self.hours)

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """Which rows count: alive and not filled in; made anew each time."""
        return self.alive & ~self.records.filled

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
        few = replace(
            records,
            gpu=records.gpu[left],
            time=records.time[left],
            filled=records.filled[left],
            failed=records.failed[left],
            order=records.order[left],
        )
        lives = Lives(np.searchsorted(left, self.lives.row), self.lives.repaired)
        breaks = np.searchsorted(left, self.breaks)
        narrow = Timeline(few, self.failures, few.gpu_bounds(), self.alive[left], breaks, lives)
        narrow.__dict__["grid"] = replace(self.grid, records=few)
        return narrow, left

    def rows_before_failures(self) -> npt.NDArray[np.int64]:
        """Return the last row of each failure's GPU before it failed, -1 where there is none."""
        failures, bounds = self.failures, self.bounds
        rows = np.full(len(failures), -1, dtype=np.int64)
        for i, (gpu, failed) in enumerate(
            zip(failures.gpu.tolist(), failures.failed_at.tolist(), strict=True)
        ):
            low = int(bounds[gpu])
            row = _rows_from(self.records, bounds, gpu, failed)
            rows[i] = row - 1 if row > low else -1
        return rows


def _rows_from(records: Records, bounds: npt.NDArray[np.int64], gpu: int, moment: int) -> int:
    """Return the GPU's first row at or after `moment` (its end if there is none)."""
    low, high = int(bounds[gpu]), int(bounds[gpu + 1])
    return low + int(np.searchsorted(records.time[low:high], moment))


def _mark_failures(
    records: Records, failures: Failures, bounds: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64], Lives]:
    """Return what is alive, where a series breaks, and the lives that begin with a repair."""
    alive, breaks = ~records.failed, []
    lives: list[tuple[int, int]] = []
    for gpu, failed, repaired in zip(
        failures.gpu.tolist(),
        failures.failed_at.tolist(),
        failures.repaired_at.tolist(),
        strict=True,
    ):
        down = _rows_from(records, bounds, gpu, failed)
        up = _rows_from(records, bounds, gpu, repaired)
        alive[down:up] = False
        breaks += [row for row in (down, up) if row < bounds[gpu + 1]]
        lives += [(up, repaired)] if up < bounds[gpu + 1] else []
    table = np.array(lives, dtype=np.int64).reshape(-1, 2)
    return alive, np.unique(np.array(breaks, dtype=np.int64)), Lives(table[:, 0], table[:, 1])


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
    alive, breaks, lives = _mark_failures(records, failures, bounds)
    reborn = breaks[alive[breaks]]
    # A filled record has gained nothing; what was gained unseen stands at the one after it.
    reborn = np.sort(records.order[reborn + records.filled[reborn]])
    return Timeline(replace(records, reborn=reborn), failures, bounds, alive, breaks, lives)


@compiled
def _count_up(
    keys: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.bool_]],
    breaks: npt.NDArray[np.int64],
    interval: int,
    position: npt.NDArray[np.int32],
) -> None:
    """Count the records before each one in its unbroken series."""
    gpu, time, alive = keys
    passed = 0  # of the breaks
    for row in range(1, len(gpu)):
        while passed < len(breaks) and breaks[passed] < row:
            passed += 1
        broken = passed < len(breaks) and breaks[passed] == row
        joined = gpu[row] == gpu[row - 1] and not broken and alive[row] and alive[row - 1]
        if joined and (time[row] - time[row - 1]) * 2 < 3 * interval:
            position[row] = position[row - 1] + 1
