"""Samples of the ranks of a job: what was measured of each, at times of its own."""

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
        By channel; NaN where nothing was measured.
    """

    rank: Int64Array
    time: Int64Array
    values: Mapping[str, Float64Array]

    @classmethod
    def from_columns(
        cls, rank: Int64Array, time: Int64Array, values: Mapping[str, Float64Array]
    ) -> RankSamples:
        """Sort samples; of two of a rank at one time the later row counts."""
        order = np.lexsort((np.arange(len(rank)), time, rank))
        rank, time = rank[order], time[order]
        last = np.ones(len(rank), dtype=bool)
        last[:-1] = (np.diff(rank) != 0) | (np.diff(time) != 0)
        columns = {name: column[order][last] for name, column in values.items()}
        return cls(rank[last], time[last], columns)

    def between(self, first: int, last: int) -> RankSamples:
        """Return the samples at or after `first` and not after `last`."""
        return self._where((self.time >= first) & (self.time <= last))

    def _where(self, chosen: BoolArray) -> RankSamples:
        columns = {name: column[chosen] for name, column in self.values.items()}
        return RankSamples(self.rank[chosen], self.time[chosen], columns)

    def has(self, name: str) -> bool:
        """Say whether a channel was ever measured."""
        return name in self.values and bool(np.isfinite(self.values[name]).any())

    def by_rank(self) -> Iterator[tuple[int, slice]]:
        """Yield each rank and where its samples lie."""
        starts = np.flatnonzero(np.diff(self.rank, prepend=-1))
        ends = starts + np.diff(starts, append=len(self.rank))
        for start, end in zip(starts, ends, strict=True):
            yield int(self.rank[start]), slice(int(start), int(end))

    def medians(self, name: str) -> dict[int, float]:
        """Return each rank's median of a channel; a rank without a value is left out."""
        column = self.values.get(name)
        if column is None:
            return {}
        known = self._where(np.isfinite(column))
        return {rank: float(np.median(known.values[name][rows])) for rank, rows in known.by_rank()}

    def rates(self, *names: str) -> RankSamples:
        """Return the increase per second of counters, added up, at the end of each span.

        A counter that falls was reset: what it shows is what it has counted since. Samples without
        a value are passed over, so that the next one tells the increase of both spans. The result
        has one channel, `rate`.

        Examples
        --------
        >>> time = np.array([0, 10, 20, 30]) * 10**9
        >>> counts = {"bytes": np.array([100.0, 200.0, np.nan, 50.0])}
        >>> RankSamples.of(np.zeros(4, np.int64), time, counts).rates("bytes").values["rate"]
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
