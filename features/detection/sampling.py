"""How the metrics of a task are sampled, and what that means for their samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int64Array
from forewarn.features.compiled import compiled

__all__ = ["Sampling", "Steps", "count_steps", "increases", "median_cadence"]


_MIN_RISES = 100
_MAX_RESET_SHARE = (
    0.001  # of the rises of a counter, at most: a heap that is swept falls more often
)
_MAX_RESET_VALUE = (
    0.1  # of what it had counted, at most: a counter begins anew, a gauge falls by some
)
_MIN_RISING_SHARE = (
    0.25  # of the steps, at least: memory in use may never fall, but seldom grows so often
)
_CADENCE_TOLERANCE = 0.2  # of a cadence: that much earlier or later, or a tick, is still on time


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the metrics of a task are sampled.

    Attributes
    ----------
    slowest : int
        Ticks between two samples up to which a metric is filled as far as its own cadence.
    counters : frozenset of str
        Metrics that only count up: their increase per interval is looked at.
    """

    slowest: int = 1
    counters: frozenset[str] = frozenset()


@compiled
def _write_increases(
    counted: Float64Array, time: Int64Array, interval: int, out: Float32Array
) -> None:
    for machine in range(counted.shape[0]):
        last = first = -1
        for tick in range(counted.shape[1]):
            value = counted[machine, tick]
            if np.isnan(value):
                continue
            if last < 0:
                first = tick
            elif value >= counted[machine, last] and time[machine, tick] > time[machine, last]:
                lasted = (time[machine, tick] - time[machine, last]) / interval
                out[machine, tick] = np.float32((value - counted[machine, last]) / lasted)
                if first >= 0:
                    out[machine, first] = out[machine, tick]
                    first = -1
            last = tick


def increases(counted: Float64Array, time: Int64Array, interval: int) -> Float32Array:
    """Return by how much counters grew per interval since the sample before.

    A fall is a reset: what was counted meanwhile, nobody knows. Before the first sample nobody
    knows either, so that it takes what the next one shows.

    Parameters
    ----------
    counted : ndarray of shape (n_machines, n_ticks), float64
        Subtracted before it is rounded: float32 holds seven digits of 10^15. NaN where there is
        no sample.
    time : ndarray of the same shape, int64
        Nanoseconds at which each sample was taken, so that one that comes late is no burst.
    interval : int
        Nanoseconds.

    Examples
    --------
    >>> counted, time = np.array([[7.0, 9.0, 12.0, 1.0]]), np.array([[10, 20, 30, 40]])
    >>> increases(counted, time, 10).tolist()
    [[2.0, 2.0, 3.0, nan]]
    """
    out = np.full(counted.shape, np.nan, dtype=np.float32)
    _write_increases(counted, time, interval, out)
    return out


@dataclass(frozen=True, slots=True)
class Steps:
    """What a metric does from sample to sample.

    Attributes
    ----------
    rises, steady, falls, resets : int
        A fall to nearly nothing is a reset.
    """

    rises: int = 0
    steady: int = 0
    falls: int = 0
    resets: int = 0

    def __add__(self, other: Steps) -> Steps:
        return Steps(
            self.rises + other.rises,
            self.steady + other.steady,
            self.falls + other.falls,
            self.resets + other.resets,
        )

    @property
    def may_count(self) -> bool:
        """Tell whether nothing speaks against a counter so far."""
        return self.falls == 0 and self.resets <= max(1.0, _MAX_RESET_SHARE * self.rises)

    @property
    def counts_up(self) -> bool:
        """Tell whether it is a counter: it never falls but for rare resets, and rises often."""
        often = self.rises >= max(_MIN_RISES, _MIN_RISING_SHARE * (self.rises + self.steady))
        return often and self.falls == 0 and self.resets <= _MAX_RESET_SHARE * self.rises


@compiled
def _add_steps(samples: Float64Array, out: Int64Array) -> None:
    for machine in range(samples.shape[0]):
        last = np.nan
        for tick in range(samples.shape[1]):
            value = samples[machine, tick]
            if np.isnan(value):
                continue
            if value > last:
                out[0] += 1
            elif value == last:
                out[1] += 1
            elif value < last:
                out[3 if 0.0 <= value <= _MAX_RESET_VALUE * last else 2] += 1
            last = value


def count_steps(samples: Float64Array) -> Steps:
    """Count the steps of all machines, shape (n_machines, n_ticks); NaN is no sample.

    Examples
    --------
    >>> steps_of(np.array([[1.0, 2.0, np.nan, 2.0, 30.0, 29.0, 0.0]]))
    Steps(rises=2, steady=1, falls=1, resets=1)
    """
    out = np.zeros(4, dtype=np.int64)
    _add_steps(samples, out)
    return Steps(*out.tolist())


@compiled
def _machine_cadences(grid: Float32Array, regular: float, out: Float64Array) -> None:
    """Write the median of each machine's gaps where most are like it, else 1; NaN without any."""
    gaps = np.empty(grid.shape[1], np.int64)
    for machine in range(grid.shape[0]):
        n, last, first = 0, -1, -1
        for tick in range(grid.shape[1]):
            if np.isnan(grid[machine, tick]):
                continue
            if last >= 0:
                gaps[n] = tick - last
                n += 1
            else:
                first = tick
            last = tick
        if n == 0:
            continue
        out[machine] = 1.0
        # Were half of the gaps of two ticks or more, they would take longer in all.
        if last - first >= 1.5 * n:
            middle = np.median(gaps[:n])
            on_time = (np.abs(gaps[:n] - middle) <= max(1.0, regular * middle)).sum()
            if 2 * on_time >= n:
                out[machine] = middle


def median_cadence(grid: Float32Array) -> int:
    """Return the ticks between two samples of a metric: of the machine in the middle.

    A machine that sends less often than most is one that loses samples. So is a metric whose gaps
    are of all lengths: it has no cadence but the ticks.

    Parameters
    ----------
    grid : ndarray of shape (n_machines, n_ticks), float32
        NaN where there is no sample.

    Examples
    --------
    >>> grid = np.full((2, 9), np.nan, dtype=np.float32)
    >>> grid[:, ::4] = 1.0
    >>> cadence_of(grid)
    4
    """
    machines = np.full(len(grid), np.nan)
    _machine_cadences(grid, _CADENCE_TOLERANCE, machines)
    sent = machines[~np.isnan(machines)]
    return int(np.median(sent)) if len(sent) else 1
