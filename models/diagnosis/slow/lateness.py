"""Lateness of each rank, without the time it waits for other ranks.

The lateness of a rank is the time from the end of a collective to its entry into the next one.
Entry times alone are not enough: the tensor partner of a slow rank enters the next collective just
as late.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.features.time_units import SECOND

__all__ = ["Lateness", "measure_lateness", "times_between_operations"]

_MIN_STEPS = 5
_MIN_REGULAR_SHARE = 0.75  # of the steps must have the usual number of operations
_MAX_STEPS = 40  # the last ones: earlier steps may predate the slowdown


@dataclass(frozen=True, slots=True)
class Lateness:
    """Time that a rank spends between collectives, per step.

    Attributes
    ----------
    rank : int
    own : ndarray of shape (n_steps,)
        Seconds per step between the end of a collective and the entry into the next one.
    begin : ndarray of shape (n_steps,)
        Start of each step, in nanoseconds since 1970 UTC.
    step : float
        Median step duration in seconds.
    """

    rank: int
    own: Float64Array
    begin: Int64Array
    step: float


def measure_lateness(operations: CollectiveOperations) -> dict[int, Lateness]:
    """Return the lateness of each rank with at least five recorded steps.

    Parameters
    ----------
    operations : CollectiveOperations
        As of the verdict. Without end times, an operation ends when its last member enters it, and
        the clocks of all machines are assumed to agree.
    """
    entries = operations.entries
    own = times_between_operations(operations)
    starts = np.flatnonzero(np.diff(entries["rank"], prepend=-1))
    ends = starts + np.diff(starts, append=len(entries))
    measured = {}
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        lateness = _by_step(entries[start:end], own[start:end])
        if lateness is not None:
            measured[lateness.rank] = lateness
    return measured


def times_between_operations(operations: CollectiveOperations) -> Float64Array:
    """Return, for each entry, the seconds since the end of the rank's previous operation.

    The value is at least 0. It is NaN for the first entry of a rank, and if the end of the previous
    operation is unknown.
    """
    entries = operations.entries
    entered = np.maximum(entries["created"], entries["started"])
    ended = np.where(
        entries["completed"] > 0, entries["completed"], _last_entry_times(operations, entered)
    )
    gaps = np.full(len(entries), np.nan)
    if len(entries) < 2:
        return gaps
    spans = (entered[1:] - ended[:-1]) / SECOND
    known = (entries["rank"][1:] == entries["rank"][:-1]) & (ended[:-1] > 0)
    gaps[1:] = np.where(known, np.maximum(spans, 0.0), np.nan)
    return gaps


def _last_entry_times(operations: CollectiveOperations, entered: Int64Array) -> Int64Array:
    """Return when the last member entered each operation; 0 if not all members are recorded."""
    entries = operations.entries
    order = np.lexsort((entries["seq"], entries["group"], entries["is_p2p"]))
    rows = entries[order]
    changes = np.zeros(len(rows), dtype=bool)
    for name in ("seq", "group", "is_p2p"):
        changes |= np.diff(rows[name].astype(np.int64), prepend=-1) != 0
    starts = np.flatnonzero(changes)
    if not len(starts):
        return np.zeros(0, dtype=np.int64)
    sizes = np.diff(starts, append=len(rows))
    expected = np.array(
        [
            len(operations.ranks.intersection(operations.members[group]))
            for group in range(len(operations.groups))
        ]
    )
    is_whole = (sizes == expected[rows["group"][starts]]) & ~rows["is_p2p"][starts]
    last = np.where(is_whole, np.maximum.reduceat(entered[order], starts), 0)
    ends = np.zeros(len(rows), dtype=np.int64)
    ends[order] = np.repeat(last, sizes)
    return ends


def _by_step(rows: npt.NDArray[np.void], own: Float64Array) -> Lateness | None:
    """Sum a rank's own time by step; return None if too few steps are recorded."""
    begins, length = _steps(rows)
    if len(begins) < _MIN_STEPS:
        return None
    begins = begins[-_MAX_STEPS:]
    sums = own[begins[:, None] + np.arange(1, length + 1)].sum(axis=1)
    begin = rows["created"][begins].astype(np.int64)
    known = np.isfinite(sums)
    if known.sum() < _MIN_STEPS:
        return None
    ends = rows["created"][begins + length]
    step = float(np.median(ends - begin)) / SECOND
    return Lateness(int(rows["rank"][0]), sums[known], begin[known], step)


def _steps(rows: npt.NDArray[np.void]) -> tuple[Int64Array, int]:
    """Return where steps with the usual number of operations begin, and that number.

    A step extends from an operation that occurs once per step to its next occurrence. A step with
    an extra operation, such as the barrier of a checkpoint, is skipped.
    """
    codes = rows["group"].astype(np.int64) << 40 | rows["name"].astype(np.int64) << 20
    codes |= rows["signature"]
    best = np.zeros(0, dtype=np.int64), 0
    for code in np.unique(codes):
        places = np.flatnonzero(codes == code)
        gaps = np.diff(places)
        if len(gaps) < _MIN_STEPS:
            continue
        usual = int(np.bincount(gaps).argmax())
        regular = gaps == usual
        if (
            usual > best[1]
            and np.mean(regular) >= _MIN_REGULAR_SHARE
            and regular.sum() >= _MIN_STEPS
        ):
            best = places[:-1][regular], usual
    return best
