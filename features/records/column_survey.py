"""A survey of columns of telemetry: missing, impossible and frozen values, resets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["ColumnSurvey", "FloatSurvey", "day_extremes", "day_starts"]

IntArray = npt.NDArray[np.int64]
Readings = npt.NDArray[np.floating]
Extremes = tuple[Readings, Readings, IntArray]

# Limits of the columns that docs/formats.md, section 1, defines: outside no GPU works or is built.
_LIMITS = {
    "temperature_gpu": (-20.0, 130.0),
    "power_draw": (0.0, 3_000.0),
    "utilization_gpu": (0.0, 100.0),
    "utilization_memory": (0.0, 100.0),
    "memory_used": (0.0, 2_000_000.0),
    "clock_sm": (0.0, 6_000.0),
    "pcie_link_width": (0.0, 32.0),
}
_FEWEST_READINGS = 12  # of a GPU and day, before a constant value says anything
_RARE = 0.05  # a column that rests on more GPU-days than this does so by nature


@dataclass(slots=True)
class ColumnSurvey:
    """Counts of one column, added up part by part.

    Attributes
    ----------
    name : str
    rows, nulls, impossible, resets : int
        `impossible` values lie outside what any GPU reports, `resets` are falls of a counter.
    first, last : dict of float
        Of a counter, the first and the last known value of each serial.
    """

    name: str
    rows: int = 0
    nulls: int = 0
    impossible: int = 0
    resets: int = 0
    first: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def take(self, later: ColumnSurvey) -> None:
        """Add the survey of later values, of these serials or of others."""
        self.rows += later.rows
        self.nulls += later.nulls
        self.impossible += later.impossible
        self.resets += later.resets + _falls(self.last, later.first)
        for serial, value in later.first.items():
            self.first.setdefault(serial, value)
        self.last.update(later.last)

    def add(self, values: Readings, *, counter: bool = False, code: bool = False) -> None:
        """Count the values of one part, of a counter or of codes of events where it is said."""
        low, high = _LIMITS.get(self.name, (-np.inf, np.inf))
        if counter or code:
            low, high = 0.0, np.inf
        self.rows += len(values)
        self.nulls += int(np.isnan(values).sum())
        impossible = (values < low) | (values > high)
        if code:
            impossible |= ~np.isnan(values) & (values != np.floor(values))
        self.impossible += int(impossible.sum())

    def add_resets(
        self, values: Readings, gpu: npt.NDArray[np.int32], serials: tuple[str, ...]
    ) -> None:
        """Count the falls of a counter, from the last part on.

        Parameters
        ----------
        values, gpu : ndarrays of shape (n,)
            By GPU and time.
        serials : tuple of str
            Of the numbers in `gpu`.
        """
        known = ~np.isnan(values)
        values, gpu = values[known], gpu[known]
        same = gpu[1:] == gpu[:-1]
        self.resets += int((same & (np.diff(values) < 0)).sum())
        first = np.flatnonzero(np.append(True, ~same)[: len(gpu)])
        final = np.flatnonzero(np.append(~same, True)[: len(gpu)])
        of_gpus = [serials[number] for number in gpu[first].tolist()]
        starts = dict(zip(of_gpus, values[first].tolist(), strict=True))
        self.resets += _falls(self.last, starts)
        self.first = starts | self.first
        self.last = self.last | dict(zip(of_gpus, values[final].tolist(), strict=True))


def _falls(last: Mapping[str, float], first: Mapping[str, float]) -> int:
    """Count the serials that begin lower than they had ended."""
    return sum(value < last.get(serial, value) for serial, value in first.items())


@dataclass(slots=True)
class FloatSurvey:
    """On which days a sensor stood still while others of the same GPU moved.

    Attributes
    ----------
    days, still : dict
        Per column the number of GPU-days seen; and the number of still ones of each serial.
    """

    days: dict[str, int] = field(default_factory=dict)
    still: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(
        self,
        values: Mapping[str, Readings],
        gpu: npt.NDArray[np.int32],
        serials: tuple[str, ...],
    ) -> None:
        """Look at one part (a day, or some of it); columns of shape (n,), by GPU.

        A value of 0 that stays is idleness, and a GPU of which nothing moves may be idle too:
        frozen is a reading above 0 that stays where another reading of the GPU moves.
        """
        starts = day_starts(gpu)
        extremes = {name: day_extremes(values[name], starts) for name in values}
        self.add_days(extremes, [serials[number] for number in gpu[starts].tolist()])

    def add_days(self, extremes: Mapping[str, Extremes], serials: Sequence[str]) -> None:
        """Look at the extremes of the columns on some GPU-days; `serials` says whose each is."""
        if not len(serials):
            return
        moved = sum((high > low).astype(int) for low, high, _ in extremes.values())
        for name, (low, high, n) in extremes.items():
            enough = n >= _FEWEST_READINGS
            rests = enough & (low == high) & (low != 0.0) & (moved > 0)
            self.days[name] = self.days.get(name, 0) + int(enough.sum())
            still_days = self.still.setdefault(name, {})
            for gpu_day in np.flatnonzero(rests).tolist():
                serial = serials[gpu_day]
                still_days[serial] = still_days.get(serial, 0) + 1

    def take(self, other: FloatSurvey) -> None:
        """Add the survey of other days, or of other serials."""
        for name, days in other.days.items():
            self.days[name] = self.days.get(name, 0) + days
        for name, still in other.still.items():
            still_days = self.still.setdefault(name, {})
            for serial, days in still.items():
                still_days[serial] = still_days.get(serial, 0) + days

    def frozen(self) -> dict[str, dict[str, int]]:
        """Return per column the serials with frozen days, and how many.

        Columns that rest often do so by nature and are left out.
        """
        return {
            name: dict(sorted(days_of.items()))
            for name, days_of in self.still.items()
            if days_of and sum(days_of.values()) <= _RARE * self.days[name]
        }


def day_starts(gpu: npt.NDArray[np.int32]) -> IntArray:
    """Return the first row of each GPU, of rows by GPU."""
    return np.flatnonzero(np.append(True, np.diff(gpu) != 0)[: len(gpu)])


def day_extremes(values: Readings, starts: IntArray) -> Extremes:
    """Return least and greatest value and the number of values from each start to the next.

    Examples
    --------
    >>> low, high, n = day_extremes(np.array([1.0, np.nan, 3.0, 5.0]), np.array([0, 3]))
    >>> low.tolist(), high.tolist(), n.tolist()
    ([1.0, 5.0], [3.0, 5.0], [2, 1])
    """
    if not len(starts):
        return values[:0], values[:0], starts
    low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    n = np.add.reduceat((~np.isnan(values)).astype(np.int64), starts)
    return low, high, n
