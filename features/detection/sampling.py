"""How often the metrics of a task are sampled, and which of them are counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int64Array
from forewarn.features.compiled import compiled

__all__ = ["Sampling", "Steps", "count_steps", "increases", "median_cadence"]


_MIN_RISES = 100
_MAX_RESET_SHARE = (
    0.001  # largest share of resets among increases; garbage-collected heaps fall more often
)
_MAX_RESET_VALUE = (
    0.1  # largest value after a reset, relative to the value before; a gauge falls by less
)
_MIN_RISING_SHARE = 0.25  # smallest share of increases; memory in use rarely grows as often
_CADENCE_TOLERANCE = (
    0.2  # deviation from the cadence, or one tick, within which a sample is on time
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the metrics of a task are sampled.

    Attributes
    ----------
    max_sample_ticks : int
        Largest number of ticks between samples for which gaps are filled up to the cadence.
    counters : frozenset of str
        Metrics that only increase; their increase per interval is compared.
    """

    max_sample_ticks: int = 1
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
    """Return the increase of counters per interval since the previous sample.

    A decrease is a reset, and the increase across it is unknown. So is the increase before the
    first sample, which is set to the increase that follows.

    Parameters
    ----------
    counted : ndarray of shape (n_machines, n_ticks), float64
        Subtracted before it is rounded, because float32 holds seven digits. NaN where there is no
        sample.
    time : ndarray of the same shape, int64
        Nanoseconds at which each sample was taken, so that a late sample is no burst.
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
    """Counts of how a metric changes from sample to sample.

    Attributes
    ----------
    rises, steady, falls, resets : int
        A fall to nearly zero is a reset.
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
        """Tell whether the metric may still be a counter."""
        return self.falls == 0 and self.resets <= max(1.0, _MAX_RESET_SHARE * self.rises)

    @property
    def counts_up(self) -> bool:
        """Tell whether it is a counter: rare resets are its only falls, and it rises often."""
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
    >>> count_steps(np.array([[1.0, 2.0, np.nan, 2.0, 30.0, 29.0, 0.0]]))
    Steps(rises=2, steady=1, falls=1, resets=1)
    """
    out = np.zeros(4, dtype=np.int64)
    _add_steps(samples, out)
    return Steps(*out.tolist())


@compiled
def _machine_cadences(grid: Float32Array, regular: float, out: Float64Array) -> None:
    """Write each machine's median gap if most gaps are close to it, else 1; NaN without gaps."""
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
        # If half of the gaps were two ticks or longer, the samples would span more ticks.
        if last - first >= 1.5 * n:
            middle = np.median(gaps[:n])
            on_time = (np.abs(gaps[:n] - middle) <= max(1.0, regular * middle)).sum()
            if 2 * on_time >= n:
                out[machine] = middle


def median_cadence(grid: Float32Array) -> int:
    """Return the ticks between two samples of a metric: the median over the machines.

    A machine that sends less often than most loses samples. So does a metric whose gaps vary
    widely: its cadence is one tick.

    Parameters
    ----------
    grid : ndarray of shape (n_machines, n_ticks), float32
        NaN where there is no sample.

    Examples
    --------
    >>> grid = np.full((2, 9), np.nan, dtype=np.float32)
    >>> grid[:, ::4] = 1.0
    >>> median_cadence(grid)
    4
    """
    machines = np.full(len(grid), np.nan)
    _machine_cadences(grid, _CADENCE_TOLERANCE, machines)
    sent = machines[~np.isnan(machines)]
    return int(np.median(sent)) if len(sent) else 1
