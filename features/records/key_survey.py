"""Statistics of serials and times: cadence, gaps, duplicates, clocks, moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from forewarn.features.array_types import Int32Array, Int64Array

__all__ = ["KeySurvey", "KeyTotals"]


_PHASE_RESOLUTION = 0.01  # phases are binned by this share of the cadence
_MIN_PHASE_OFFSET = 0.1  # share of the cadence from which a clock is off
_SAMPLE_SIZE = 100  # rows from which the typical row is chosen
_MIN_COMMON_SHARE = 0.5  # share of records that must agree on a phase before others are off


@dataclass(frozen=True, slots=True)
class KeySurvey:
    """Statistics of the keys of all records.

    Attributes
    ----------
    records, doubled : int
        Distinct rows by serial and time; duplicate rows.
    cadence : int
        Median nanoseconds between consecutive records of a GPU; 0 if no GPU has two.
    gaps, missing : int
        Number of gaps, and of records missing in them.
    two_machines : tuple of int
        GPUs that were on two machines at the same time.
    moved : int
        Number of GPUs that moved from one machine to another.
    clocks : dict of int to int
        Offset in nanoseconds of machines whose records are out of phase with most others.
    """

    records: int
    doubled: int
    cadence: int
    gaps: int
    missing: int
    two_machines: tuple[int, ...]
    moved: int
    clocks: dict[int, int]

    @property
    def coverage(self) -> float:
        """Share of the expected records that exist."""
        return self.records / (self.records + self.missing) if self.records else 0.0


@dataclass(frozen=True, slots=True)
class _ValueCounts:
    """Counts of distinct numbers, or of distinct pairs of numbers.

    Attributes
    ----------
    columns : tuple of ndarray of shape (n,)
        The numbers, sorted by the first column, then by the second.
    times : ndarray of shape (n,), int64
    """

    columns: tuple[Int64Array, ...]
    times: Int64Array

    @classmethod
    def from_columns(cls, *columns: Int64Array) -> Self:
        """Count rows; rows equal to a typical one, usually nearly all, are not sorted."""
        usual, row = np.ones(len(columns[0]), dtype=bool), _typical_row(columns[0])
        for column in columns:
            usual &= column == column[row]
        rest = [column[~usual] for column in columns]
        merged = [
            np.append(column[row], other) for column, other in zip(columns, rest, strict=True)
        ]
        times = np.ones(len(merged[0]), dtype=np.int64)
        times[:1] = np.count_nonzero(usual)
        return cls(tuple(merged), times)._merged()

    def joined(self, other: _ValueCounts) -> _ValueCounts:
        """Merge two counts."""
        pairs = zip(self.columns, other.columns, strict=True)
        columns = tuple(np.concatenate(pair) for pair in pairs)
        return _ValueCounts(columns, np.concatenate([self.times, other.times]))._merged()

    def _merged(self) -> Self:
        order = np.lexsort(self.columns[::-1])
        columns = [column[order] for column in self.columns]
        new = np.ones(len(order), dtype=bool)
        new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        starts = np.flatnonzero(new)
        times = np.add.reduceat(self.times[order], starts) if len(starts) else self.times
        return type(self)(tuple(column[starts] for column in columns), times)


def _typical_row(column: Int64Array) -> slice:
    """Return the slice of a row with the median of a sample; empty without rows."""
    step = max(1, len(column) // _SAMPLE_SIZE)
    sample = np.argsort(column[::step], kind="stable")
    row = step * int(sample[len(sample) // 2]) if len(sample) else 0
    return slice(row, row + 1)


def _median(values: Int64Array, times: Int64Array) -> int:
    """Return the weighted median of sorted values; 0 if there are none."""
    ends = np.cumsum(times)
    if not len(ends):
        return 0
    middle = np.array([(ends[-1] - 1) // 2, ends[-1] // 2])
    return int(values[np.searchsorted(ends, middle, side="right")].mean())


def _no_rows(n_columns: int) -> _ValueCounts:
    return _ValueCounts.from_columns(*(np.zeros(0, dtype=np.int64) for _ in range(n_columns)))


def _phases_of(machine: Int32Array, phase: Int64Array) -> _ValueCounts:
    """Count pairs of machine and phase; agreeing clocks are counted without a sort."""
    row = _typical_row(phase)
    usual = phase == phase[row]
    counts = np.bincount(machine[usual] + 1)
    machines = np.flatnonzero(counts)
    agreed = _ValueCounts(
        (machines - 1, np.full(len(machines), phase[row].sum())), counts[machines]
    )
    return agreed.joined(_ValueCounts.from_columns(machine[~usual].astype(np.int64), phase[~usual]))


@dataclass(slots=True)
class KeyTotals:
    """An accumulator of the keys of a fleet, whose memory does not grow with rows.

    Memory grows with the number of distinct spacings and of phases per machine. Both are few while
    records have whole seconds.

    Attributes
    ----------
    cadence : int or None
        Cadence to which phases refer; None for that of the first part.
    """

    cadence: int | None = None
    _rows: int = 0
    _doubled: int = 0
    _steps: _ValueCounts = field(default_factory=lambda: _no_rows(1))
    _both: set[int] = field(default_factory=set)
    _elsewhere: set[int] = field(default_factory=set)
    _phases: _ValueCounts = field(default_factory=lambda: _no_rows(2))

    def add(self, gpu: Int32Array, time: Int64Array, machine: Int32Array) -> None:
        """Count all rows of some GPUs.

        Parameters
        ----------
        gpu, time, machine : ndarrays of shape (n,)
            By GPU and time; time in nanoseconds; -1 is an unknown machine.
        """
        if not len(gpu):  # no rows determine no cadence
            return
        same, spacing = gpu[1:] == gpu[:-1], np.diff(time)
        doubled = same & (spacing == 0)
        known = (machine[1:] >= 0) & (machine[:-1] >= 0)
        elsewhere = same & known & (machine[1:] != machine[:-1])
        self._rows += len(gpu)
        self._doubled += int(doubled.sum())
        self._steps = self._steps.joined(_ValueCounts.from_columns(spacing[same & (spacing > 0)]))
        self._both |= set(gpu[1:][doubled & elsewhere].tolist())
        self._elsewhere |= set(gpu[1:][elsewhere].tolist())
        if self.cadence is None:
            self.cadence = self.median_step
        if self.cadence:
            self._phases = self._phases.joined(_phases_of(machine, time % self.cadence))

    @property
    def median_step(self) -> int:
        """The median of all spacings; 0 if there is none."""
        return _median(self._steps.columns[0], self._steps.times)

    def survey(self) -> KeySurvey:
        """Return the statistics; requires that `cadence` equals `median_step`."""
        (steps,), times = self._steps.columns, self._steps.times
        cadence = self.median_step
        lost = np.floor(steps / cadence + 0.5).astype(np.int64) - 1 if cadence else steps
        gaps = lost > 0
        return KeySurvey(
            records=self._rows - self._doubled,
            doubled=self._doubled,
            cadence=cadence,
            gaps=int(times[gaps].sum()),
            missing=int((lost * times)[gaps].sum()),
            two_machines=tuple(sorted(self._both)),
            moved=len(self._elsewhere - self._both),
            clocks=_clocks(self._phases, cadence),
        )


def _clocks(phases: _ValueCounts, cadence: int) -> dict[int, int]:
    """Return the machines that are out of phase with most records, with their offset."""
    (machine, phase), times = phases.columns, phases.times
    if not cadence or not len(times):
        return {}
    fine = max(1, round(cadence * _PHASE_RESOLUTION))
    bins = np.bincount(phase // fine, weights=times)
    common = int(np.argmax(bins)) * fine + fine // 2
    # Offsets in [-cadence / 2, cadence / 2), so that shortly before the hour is a small offset.
    off = (phase - common + cadence // 2) % cadence - cadence // 2
    far = np.abs(off) > _MIN_PHASE_OFFSET * cadence
    if times[~far].sum() / times.sum() < _MIN_COMMON_SHARE:
        return {}
    offsets = {}
    for number in np.unique(machine[far & (machine >= 0)]).tolist():
        rows = np.flatnonzero(machine == number)
        rows = rows[np.argsort(off[rows], kind="stable")]
        middle = _median(off[rows], times[rows])
        if abs(middle) > _MIN_PHASE_OFFSET * cadence:
            offsets[number] = middle
    return offsets
