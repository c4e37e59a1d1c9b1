"""Puts the samples of all machines of a task on one time grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import Float32Array, Float64Array, Int32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.detection.sampling import increases, median_cadence
from forewarn.features.duration import format_duration
from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND

__all__ = ["MAX_FILLED_GAP", "TaskGrid", "TaskGridError", "build_task_grid"]

MAX_FILLED_GAP = 3  # missing samples in a row that are filled from the nearest one
_MAX_CELLS = 2_000_000_000
_MAX_OFF_CLOCK_SHARE = 0.2  # share of a machine's samples outside the task's time span


class TaskGridError(InputError):
    """The samples cannot be put on one time grid."""


@dataclass(frozen=True, slots=True)
class TaskGrid:
    """The position of every sample on the grid.

    Attributes
    ----------
    machines : tuple of str
        Sorted.
    first_tick : int
        Intervals since 1970 UTC; the number of a tick is the same in every call.
    interval : int
        Nanoseconds.
    n_ticks : int
    cell : ndarray of shape (n_samples,), int64
        Position in the flattened grid (machine, tick); -1 for samples outside the task's time span.
    off_clock : tuple of str
        Machines with many samples outside the time span of the others.
    """

    machines: tuple[str, ...]
    first_tick: int
    interval: int
    n_ticks: int
    cell: Int64Array
    off_clock: tuple[str, ...]

    def on_ticks(self, values: Float32Array, slowest: int = 1) -> Float32Array:
        """Return one metric on the grid, shape (n_machines, n_ticks), with short gaps filled.

        A tick without a sample takes the nearest one, the earlier of two, if at most
        `MAX_FILLED_GAP` are missing in a row. Longer gaps, and ticks before the first or after the
        last sample of a machine, stay NaN. For a metric that is sampled less often than every tick,
        but at least every `slowest` ticks, one lost sample is filled.
        """
        grid = np.full((len(self.machines), self.n_ticks), np.nan, dtype=np.float32)
        _scatter(grid.reshape(-1), self.cell, values)
        return _fill_gaps(grid, slowest)

    def increases_on_ticks(
        self, values: Float64Array, time: Int64Array, slowest: int = 1
    ) -> Float32Array:
        """Return the increase per interval of a counter on the grid, filled as in `on_ticks`.

        Parameters
        ----------
        values : ndarray of shape (n_samples,), float64
            Counter values.
        time : ndarray of shape (n_samples,)
            Nanoseconds since 1970 UTC.
        slowest : int
        """
        times = np.zeros(len(self.machines) * self.n_ticks, dtype=np.int64)
        sent = np.flatnonzero((self.cell >= 0) & np.isfinite(values))
        times[self.cell[sent]] = time[sent]
        counted = self.as_sent(values)
        return _fill_gaps(increases(counted, times.reshape(counted.shape), self.interval), slowest)

    def as_sent(self, values: Float64Array) -> Float64Array:
        """Return one metric on the grid without filling; NaN in all gaps."""
        grid = np.full((len(self.machines), self.n_ticks), np.nan)
        _scatter(grid.reshape(-1), self.cell, values)
        return grid

    def with_samples(self, machine: Int64Array, time: Int64Array) -> TaskGrid:
        """Return the same grid for other samples, given by machine number and time.

        Samples outside the time span of the grid are dropped.
        """
        tick = (time + self.interval // 2) // self.interval - self.first_tick
        inside = (tick >= 0) & (tick < self.n_ticks)
        cell = np.where(inside, machine * self.n_ticks + tick, -1)
        return replace(self, cell=cell)

    def time(self, tick: int) -> int:
        """Return the time of a tick, nanoseconds since 1970 UTC."""
        return (self.first_tick + tick) * self.interval


@compiled
def _scatter(
    grid: npt.NDArray[np.floating[Any]], cell: Int64Array, values: npt.NDArray[np.floating[Any]]
) -> None:
    for row in range(len(cell)):
        if cell[row] >= 0 and np.isfinite(values[row]):
            grid[cell[row]] = values[row]


def _fill_gaps(grid: Float32Array, slowest: int) -> Float32Array:
    """Fill the gaps of a grid in place."""
    cadence = median_cadence(grid) if slowest > 1 else 1
    _fill(grid, max(MAX_FILLED_GAP, 2 * cadence - 1) if cadence <= slowest else MAX_FILLED_GAP)
    return grid


@compiled
def _fill(grid: Float32Array, longest: int) -> None:
    for machine in range(grid.shape[0]):
        row, last = grid[machine], -1
        for tick in range(grid.shape[1]):
            if np.isnan(row[tick]):
                continue
            missing = tick - last - 1
            if last >= 0 and 0 < missing <= longest:
                for step in range(1, missing + 1):
                    row[last + step] = row[last] if 2 * step <= missing + 1 else row[tick]
            last = tick


def build_task_grid(
    codes: Int32Array, names: Sequence[str], time: Int64Array, interval: int
) -> TaskGrid:
    """Assign each sample to the nearest tick; of several samples on a tick the last one counts.

    The time span begins when a tenth of the machines, at least two, have sent a sample, and ends
    the same way, so that one machine with a wrong clock cannot extend it.

    Parameters
    ----------
    codes : ndarray of shape (n_samples,)
        Position of the machine in `names`.
    names : sequence of str
    time : ndarray of shape (n_samples,)
        Nanoseconds since 1970 UTC.
    interval : int
        Nanoseconds between two samples of a machine.

    Raises
    ------
    TaskGridError
        If there is no sample, or the time span has too many intervals.
    """
    if not len(codes):
        raise TaskGridError("contains no samples; expected samples of at least one machine.")
    order = np.argsort(np.array(names, dtype=object), kind="stable")
    row = np.empty(len(names), dtype=np.int64)
    row[order] = np.arange(len(names))
    machine, tick = row[codes], (time + interval // 2) // interval
    first, last = _lifetimes(machine, tick, len(names))
    few = min(max(2, -(-len(names) // 10)), len(names)) - 1
    begin, end = int(np.sort(first)[few]), int(np.sort(last)[-1 - few])
    if begin > end:
        begin, end = int(first.min()), int(last.max())
    n_ticks = end - begin + 1
    if n_ticks * len(names) > _MAX_CELLS:
        raise TaskGridError(
            f"spans {n_ticks:,} intervals of {format_duration(interval / SECOND)} with "
            f"{len(names)} machines; expected a shorter span or a longer `detection.interval`."
        )
    inside = (tick >= begin) & (tick <= end)
    cell = np.where(inside, machine * n_ticks + tick - begin, -1)
    outside = np.bincount(machine[~inside], minlength=len(names))
    share = outside / np.maximum(np.bincount(machine, minlength=len(names)), 1)
    machines = tuple(names[i] for i in order)
    off = tuple(
        name for name, part in zip(machines, share, strict=True) if part > _MAX_OFF_CLOCK_SHARE
    )
    return TaskGrid(machines, begin, interval, n_ticks, cell, off)


def _lifetimes(machine: Int64Array, tick: Int64Array, n: int) -> tuple[Int64Array, Int64Array]:
    """Return the first and the last tick of every machine."""
    first = np.full(n, np.iinfo(np.int64).max)
    last = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, machine, tick)
    np.maximum.at(last, machine, tick)
    return first, last
