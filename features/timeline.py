"""Records and failures put together as they stood at one moment: series, lives, alive rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.failures import Failures
from forewarn.features.hourly import HourlyGrid
from forewarn.features.records import Records

__all__ = ["Timeline", "lay_out"]


@dataclass(frozen=True)
class Timeline:
    """Records of a span with all that was known of failures.

    Attributes
    ----------
    records : Records
    failures : Failures
        One row per failure, by GPU and time.
    bounds : ndarray of shape (n_gpus + 1,)
        First row of every GPU.
    alive : ndarray of shape (n,), bool
        False while the GPU is failed.
    position : ndarray of shape (n,), int64
        Number of records before this one in its unbroken series.
    life_start : ndarray of shape (n,), int64
        Since when the GPU lives: its last repair, or its first record here.
    """

    records: Records
    failures: Failures
    bounds: npt.NDArray[np.int64]
    alive: npt.NDArray[np.bool_]
    position: npt.NDArray[np.int64]
    life_start: npt.NDArray[np.int64]

    @cached_property
    def grid(self) -> HourlyGrid:
        """The hourly sums of the rows that count: alive and not filled in."""
        counted = np.flatnonzero(self.alive & ~self.records.filled)
        return HourlyGrid.of(self.records, counted)


def _rows_from(records: Records, bounds: npt.NDArray[np.int64], gpu: int, moment: int) -> int:
    """Return the GPU's first row at or after `moment` (its end if there is none)."""
    low, high = int(bounds[gpu]), int(bounds[gpu + 1])
    return low + int(np.searchsorted(records.time[low:high], moment))


def _mark_failures(
    records: Records, failures: Failures, bounds: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Return what is alive, where a series breaks, and since when each row's GPU lives."""
    n = len(records)
    alive, breaks = ~records.failed, np.zeros(n, dtype=bool)
    first = np.minimum(bounds[:-1], max(n - 1, 0))
    life = records.time[first][records.gpu] if n else np.zeros(0, dtype=np.int64)
    for gpu, failed, repaired in zip(
        failures.gpu.tolist(),
        failures.failed_at.tolist(),
        failures.repaired_at.tolist(),
        strict=True,
    ):
        down = _rows_from(records, bounds, gpu, failed)
        up = _rows_from(records, bounds, gpu, repaired)
        alive[down:up] = False
        mine = [row for row in (down, up) if row < bounds[gpu + 1]]
        breaks[mine] = True
        life[up : bounds[gpu + 1]] = np.maximum(repaired, life[up : bounds[gpu + 1]])
    return alive, breaks, life


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
    alive, breaks, life = _mark_failures(records, failures, bounds)
    position = np.full(len(records), 0, dtype=np.int64)
    _count_up(records.gpu, records.time, alive & ~breaks, alive, records.interval, position)
    records = _without_first_increases(records, np.flatnonzero(breaks & alive))
    return Timeline(records, failures, bounds, alive, position, life)


@compiled
def _count_up(
    gpu: npt.NDArray[np.int32],
    time: npt.NDArray[np.int64],
    follows: npt.NDArray[np.bool_],
    alive: npt.NDArray[np.bool_],
    interval: int,
    position: npt.NDArray[np.int64],
) -> None:
    """Count the records before each one in its unbroken series."""
    for row in range(1, len(gpu)):
        joined = gpu[row] == gpu[row - 1] and follows[row] and alive[row - 1]
        if joined and (time[row] - time[row - 1]) * 2 < 3 * interval:
            position[row] = position[row - 1] + 1


def _without_first_increases(records: Records, reborn: npt.NDArray[np.int64]) -> Records:
    """Forget what counters gained at the rows where a life begins."""
    if not len(reborn):
        return records
    # A filled record has gained nothing; what was gained unseen stands at the one after it.
    reborn = reborn + records.filled[reborn]
    columns = dict(records.columns)
    for name in records.counters:
        columns[name] = columns[name].copy()
        columns[name][records.order[reborn]] = np.nan
    return replace(records, columns=columns)
