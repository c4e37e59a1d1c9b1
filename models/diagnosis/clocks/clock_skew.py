"""Detection of clock skew: ranks that seem to leave a collective before others have entered it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import Int64Array
from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.features.diagnosis.flight_recorder_dump import COMPLETED

__all__ = ["find_skewed_ranks", "needs_clock_alignment"]

_TOLERANCE_NS = 1_000_000
_MAX_INCONSISTENT_SHARE = 0.1  # of a rank's collectives; those within a machine show no skew
_MIN_SHARE_WITH_END_TIMES = 0.9  # with more, a rank's own clock is enough


def needs_clock_alignment(operations: CollectiveOperations) -> bool:
    """Return whether operations lack end times, which then depend on the clocks of other ranks.

    Parameters
    ----------
    operations : CollectiveOperations
    """
    entries = operations.entries
    done = entries["state"] == COMPLETED
    return (
        bool(done.any())
        and float(np.mean(entries["completed"][done] > 0)) < _MIN_SHARE_WITH_END_TIMES
    )


def find_skewed_ranks(operations: CollectiveOperations) -> frozenset[int]:
    """Return the ranks whose lateness cannot be measured because of clock skew.

    A rank enters its next operation after all members have entered the current one. A clock is
    skewed if its rank continues before half of the others have entered, or enters after half of
    them have continued. In a group of two, both clocks are in doubt.

    Parameters
    ----------
    operations : CollectiveOperations
        Operations without end times.
    """
    entries = operations.entries
    following = _next_entry_times(entries)
    usable = np.flatnonzero(~entries["is_p2p"] & (following > 0))
    rows = entries[usable]
    entered, left = rows["created"], following[usable]
    keys = rows["group"].astype(np.int64) << 40 | rows["seq"]
    early = left < _median_times(keys, entered, upper=True) - _TOLERANCE_NS
    late = entered > _median_times(keys, left, upper=False) + _TOLERANCE_NS
    size = int(rows["rank"].max(initial=0)) + 1
    doubts = np.bincount(rows["rank"], weights=early | late, minlength=size)
    shares = doubts / np.maximum(np.bincount(rows["rank"], minlength=size), 1)
    return frozenset(np.flatnonzero(shares > _MAX_INCONSISTENT_SHARE).tolist())


def _next_entry_times(entries: npt.NDArray[np.void]) -> Int64Array:
    """Return when the rank of each entry entered its next operation; 0 for its last entry."""
    following = np.zeros(len(entries), dtype=np.int64)
    same = entries["rank"][1:] == entries["rank"][:-1]
    following[:-1] = np.where(same, entries["created"][1:], 0)
    return following


def _median_times(keys: Int64Array, times: Int64Array, *, upper: bool) -> Int64Array:
    """Return the median time of each row's operation: the upper or lower one of an even number."""
    order = np.lexsort((times, keys))
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    sizes = np.diff(starts, append=len(keys))
    middle = times[order][starts + (sizes if upper else sizes - 1) // 2]
    middles = np.empty(len(keys), dtype=np.int64)
    middles[order] = np.repeat(middle, sizes)
    return middles
