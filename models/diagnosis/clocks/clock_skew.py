"""Whose clock cannot be right: somebody left a collective before the others had entered it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import Int64Array
from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.features.diagnosis.flight_recorder_dump import COMPLETED

__all__ = ["find_skewed_ranks", "needs_clock_alignment"]

_TOLERANCE_NS = 1_000_000  # nanoseconds
_MAX_INCONSISTENT_SHARE = 0.1  # of a rank's collectives: those within a machine show nothing
_MIN_SHARE_WITH_END_TIMES = 0.9  # of the operations: then a rank's own clock is enough


def needs_clock_alignment(operations: CollectiveOperations) -> bool:
    """Say whether operations have no ends of their own, so that those of others have to do.

    Parameters
    ----------
    operations : Operations
    """
    entries = operations.entries
    done = entries["state"] == COMPLETED
    return (
        bool(done.any())
        and float(np.mean(entries["completed"][done] > 0)) < _MIN_SHARE_WITH_END_TIMES
    )


def find_skewed_ranks(operations: CollectiveOperations) -> frozenset[int]:
    """Return the ranks whose lateness cannot be told, since clocks disagree and ends are missing.

    A rank enters its next operation after all members have entered the one before. A clock is off
    where a rank goes on before half of the others have come, or comes after half of them have gone
    on; in a pair both are in doubt.

    Parameters
    ----------
    operations : Operations
        Without ends of their own.
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
    """Return when the rank of each entry entered its next one; 0 for its last."""
    following = np.zeros(len(entries), dtype=np.int64)
    same = entries["rank"][1:] == entries["rank"][:-1]
    following[:-1] = np.where(same, entries["created"][1:], 0)
    return following


def _median_times(keys: Int64Array, times: Int64Array, *, upper: bool) -> Int64Array:
    """Return for each row the median time of its operation, the upper or lower of two."""
    order = np.lexsort((times, keys))
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    sizes = np.diff(starts, append=len(keys))
    middle = times[order][starts + (sizes if upper else sizes - 1) // 2]
    middles = np.empty(len(keys), dtype=np.int64)
    middles[order] = np.repeat(middle, sizes)
    return middles
