"""Statistics of telemetry columns: missing, impossible and frozen values, counter resets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import FloatingArray, Int32Array, Int64Array

__all__ = [
    "ColumnSurvey",
    "ColumnTotals",
    "Extremes",
    "FloatSurvey",
    "FloatTotals",
    "day_extremes",
    "day_starts",
]

Extremes = tuple[FloatingArray, FloatingArray, Int64Array]

# Limits of the columns of formats.md, section 1; no GPU reports values outside.
_LIMITS = {
    "temperature_gpu": (-20.0, 130.0),
    "power_draw": (0.0, 3_000.0),
    "utilization_gpu": (0.0, 100.0),
    "utilization_memory": (0.0, 100.0),
    "memory_used": (0.0, 2_000_000.0),
    "clock_sm": (0.0, 6_000.0),
    "pcie_link_width": (0.0, 32.0),
}
_MIN_READINGS = 12  # of a GPU and day; fewer do not show that a sensor is frozen
_NO_ENDS = np.zeros(0, dtype=np.int32), np.zeros(0), np.zeros(0)
_MAX_FROZEN_SHARE = 0.05  # a column that is constant on more GPU-days is constant by nature


@dataclass(frozen=True, slots=True)
class ColumnSurvey:
    """Statistics of one column of some rows.

    Attributes
    ----------
    name : str
    rows, nulls, impossible, resets : int
        `impossible` values lie outside the range of any GPU; `resets` are decreases of a counter.
    gpu : ndarray of shape (n,), int32
        For a counter, the GPUs with a known value.
    first, last : ndarrays of shape (n,)
        The first and the last known value of each of them.
    """

    name: str
    rows: int
    nulls: int
    impossible: int
    resets: int
    gpu: Int32Array
    first: FloatingArray
    last: FloatingArray

    @classmethod
    def from_values(cls, name: str, values: FloatingArray, *, code: bool = False) -> ColumnSurvey:
        """Count nulls and impossible values; `code` marks a column of event codes."""
        low, high = (0.0, np.inf) if code else _LIMITS.get(name, (-np.inf, np.inf))
        impossible = (values < low) | (values > high)
        if code:
            impossible |= ~np.isnan(values) & (values != np.floor(values))
        n_nulls, n_impossible = int(np.isnan(values).sum()), int(impossible.sum())
        return cls(name, len(values), n_nulls, n_impossible, 0, *_NO_ENDS)

    @classmethod
    def from_counter(cls, name: str, values: FloatingArray, gpu: Int32Array) -> ColumnSurvey:
        """Count nulls, impossible values and resets of a counter, sorted by GPU and time."""
        known = ~np.isnan(values)
        n_nulls, n_impossible = int((~known).sum()), int((values < 0.0).sum())
        rows, values, gpu = len(values), values[known], gpu[known]
        same = gpu[1:] == gpu[:-1]
        resets = int((same & (np.diff(values) < 0)).sum())
        first = day_starts(gpu)
        last = np.flatnonzero(np.append(~same, True)[: len(gpu)])
        ends = gpu[first], values[first], values[last]
        return cls(name, rows, n_nulls, n_impossible, resets, *ends)

    @classmethod
    def joined(cls, parts: Sequence[ColumnSurvey]) -> ColumnSurvey:
        """Merge surveys of different GPUs; `parts` is not empty."""
        return cls(
            name=parts[0].name,
            rows=sum(part.rows for part in parts),
            nulls=sum(part.nulls for part in parts),
            impossible=sum(part.impossible for part in parts),
            resets=sum(part.resets for part in parts),
            gpu=np.concatenate([part.gpu for part in parts]),
            first=np.concatenate([part.first for part in parts]),
            last=np.concatenate([part.last for part in parts]),
        )


@dataclass(slots=True)
class ColumnTotals:
    """An accumulator of the statistics of one column of a fleet.

    Attributes
    ----------
    name : str
    rows, nulls, impossible, resets : int
        As in `ColumnSurvey`; resets between two parts count as well.
    """

    name: str
    rows: int = 0
    nulls: int = 0
    impossible: int = 0
    resets: int = 0
    _last: FloatingArray = field(default_factory=lambda: np.zeros(0))  # by GPU; NaN if unknown

    def add(self, survey: ColumnSurvey, number: Int64Array, n_gpus: int) -> None:
        """Add a survey of later values of known GPUs or of further GPUs.

        Parameters
        ----------
        survey : ColumnSurvey
        number : ndarray of int
            Fleet number of each GPU of the survey.
        n_gpus : int
            Number of GPUs of the fleet so far.
        """
        self.rows += survey.rows
        self.nulls += survey.nulls
        self.impossible += survey.impossible
        self.resets += survey.resets
        if len(survey.gpu):
            gpu = number[survey.gpu]
            self._last = _extend(self._last, n_gpus, np.nan)
            self.resets += int((survey.first < self._last[gpu]).sum())
            self._last[gpu] = survey.last

    def counts(self) -> dict[str, str | int]:
        """Return the attributes by name."""
        names = ("name", "rows", "nulls", "impossible", "resets")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class FloatSurvey:
    """Frozen sensors by GPU-day: constant while other sensors of the GPU change.

    Attributes
    ----------
    days : dict of int
        Number of GPU-days with enough readings, by column.
    still : dict of ndarray, int32
        GPU of each frozen day, by column.
    """

    days: dict[str, int]
    still: dict[str, Int32Array]

    @classmethod
    def from_extremes(cls, extremes: Mapping[str, Extremes], gpu: Int32Array) -> FloatSurvey:
        """Find frozen sensors by the daily extremes of columns; `gpu` is the GPU of each day.

        A constant 0 means idleness, and a GPU without any change may be idle as well. A sensor is
        frozen if it repeats a nonzero value while another sensor of the GPU changes.
        """
        days, still = {}, {}
        moved = sum((high > low).astype(int) for low, high, _ in extremes.values())
        for name, (low, high, n) in extremes.items():
            enough = n >= _MIN_READINGS
            rests = enough & (low == high) & (low != 0.0) & (moved > 0)
            days[name], still[name] = int(enough.sum()), gpu[rests]
        return cls(days, still)


@dataclass(slots=True)
class FloatTotals:
    """An accumulator of frozen days by column and GPU."""

    _days: dict[str, int] = field(default_factory=dict)
    _still: dict[str, Int64Array] = field(default_factory=dict)

    def add(self, survey: FloatSurvey, number: Int64Array, n_gpus: int) -> None:
        """Add the survey of other days or other GPUs; parameters as in `ColumnTotals.add`."""
        for name, gpu in survey.still.items():
            self._days[name] = self._days.get(name, 0) + survey.days[name]
            if len(gpu):
                before = self._still.get(name, np.zeros(0, dtype=np.int64))
                self._still[name] = _extend(before, n_gpus, 0)
                np.add.at(self._still[name], number[gpu], 1)

    def frozen(self, serials: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return the number of frozen days by column and serial.

        Columns that are often constant by nature are excluded.
        """
        still = {name: self._still[name] for name in self._days if name in self._still}
        return {
            name: {serials[gpu]: int(days[gpu]) for gpu in _by_serial(days, serials)}
            for name, days in still.items()
            if days.sum() <= _MAX_FROZEN_SHARE * self._days[name]
        }


def _by_serial(days: Int64Array, serials: Sequence[str]) -> list[int]:
    return sorted(np.flatnonzero(days).tolist(), key=lambda gpu: serials[gpu])


def _extend(values: npt.NDArray[Any], n_gpus: int, fill: float) -> npt.NDArray[Any]:
    """Extend the values of a fleet to `n_gpus` GPUs."""
    more = n_gpus - len(values)
    return np.append(values, np.full(more, fill, values.dtype)) if more else values


def day_starts(gpu: Int32Array) -> Int64Array:
    """Return the first row of each GPU; rows are sorted by GPU."""
    return np.flatnonzero(np.append(True, np.diff(gpu) != 0)[: len(gpu)])


def day_extremes(values: FloatingArray, starts: Int64Array) -> Extremes:
    """Return minimum, maximum and count of the known values of each segment.

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
