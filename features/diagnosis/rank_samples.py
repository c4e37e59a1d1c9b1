"""Samples of metrics of the ranks of a job, each rank with its own sample times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.features.time_units import SECOND

__all__ = ["RankSamples"]


@dataclass(frozen=True, slots=True)
class RankSamples:
    """Samples of all ranks, sorted by rank and time.

    Attributes
    ----------
    rank : ndarray of shape (n,)
    time : ndarray of shape (n,)
        Nanoseconds since 1970 UTC.
    values : mapping of str to ndarray of shape (n,)
        By channel; NaN for missing values.
    """

    rank: Int64Array
    time: Int64Array
    values: Mapping[str, Float64Array]

    @classmethod
    def from_columns(
        cls, rank: Int64Array, time: Int64Array, values: Mapping[str, Float64Array]
    ) -> RankSamples:
        """Sort samples; of two samples of a rank at the same time, the later row counts."""
        order = np.lexsort((np.arange(len(rank)), time, rank))
        rank, time = rank[order], time[order]
        last = np.ones(len(rank), dtype=bool)
        last[:-1] = (np.diff(rank) != 0) | (np.diff(time) != 0)
        columns = {name: column[order][last] for name, column in values.items()}
        return cls(rank[last], time[last], columns)

    def between(self, first: int, last: int) -> RankSamples:
        """Return the samples in the closed interval [`first`, `last`]."""
        return self._where((self.time >= first) & (self.time <= last))

    def _where(self, chosen: BoolArray) -> RankSamples:
        columns = {name: column[chosen] for name, column in self.values.items()}
        return RankSamples(self.rank[chosen], self.time[chosen], columns)

    def has(self, name: str) -> bool:
        """Return whether a channel has any value."""
        return name in self.values and bool(np.isfinite(self.values[name]).any())

    def by_rank(self) -> Iterator[tuple[int, slice]]:
        """Yield each rank with the slice of its samples."""
        starts = np.flatnonzero(np.diff(self.rank, prepend=-1))
        ends = starts + np.diff(starts, append=len(self.rank))
        for start, end in zip(starts, ends, strict=True):
            yield int(self.rank[start]), slice(int(start), int(end))

    def medians(self, name: str) -> dict[int, float]:
        """Return each rank's median of a channel, without ranks that have no value."""
        column = self.values.get(name)
        if column is None:
            return {}
        known = self._where(np.isfinite(column))
        return {rank: float(np.median(known.values[name][rows])) for rank, rows in known.by_rank()}

    def rates(self, *names: str) -> RankSamples:
        """Return the summed increase per second of counters, at the end of each interval.

        A counter that decreases was reset; its new value is the increase since the reset. Samples
        without a value are skipped, so that the next sample covers both intervals. The result has
        one channel, `rate`.

        Examples
        --------
        >>> time = np.array([0, 10, 20, 30]) * 10**9
        >>> counts = {"bytes": np.array([100.0, 200.0, np.nan, 50.0])}
        >>> samples = RankSamples.from_columns(np.zeros(4, np.int64), time, counts)
        >>> samples.rates("bytes").values["rate"]
        array([10. ,  2.5])
        """
        present = [name for name in names if self.has(name)]
        known = np.ones(len(self.rank), dtype=bool)
        for name in present:
            known &= np.isfinite(self.values[name])
        rows = self._where(known & bool(present))
        same = np.diff(rows.rank) == 0
        total = np.zeros(int(same.sum()))
        for name in present:
            increase = np.diff(rows.values[name])[same]
            total += np.where(increase < 0, rows.values[name][1:][same], increase)
        seconds = np.diff(rows.time)[same] / SECOND
        rate = total / np.maximum(seconds, 1e-9)
        return RankSamples(rows.rank[1:][same], rows.time[1:][same], {"rate": rate})
