"""Alignment of machine clocks by the bounds that collectives imply.

No rank leaves a collective before its last member has entered it. A rank's next entry, on its own
clock, therefore bounds by how much that clock can be behind every other clock. Both directions
together give an interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.diagnosis.collective_operations import CollectiveOperations
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.time_units import SECOND

__all__ = ["ClockAlignment", "align_clocks"]

_TOLERANCE_NS = 1_000_000  # a bound violated by less does not count
_MAX_OPERATIONS = 200  # per group, the last ones, because clocks drift
_MAX_CLOCKS = 1024  # run time is cubic
_MAX_CELLS = 2**22  # of an array of operations x clocks x clocks


@dataclass(frozen=True, slots=True)
class ClockAlignment:
    """Operations on a common clock.

    Attributes
    ----------
    operations : CollectiveOperations
    clock_uncertainty : mapping of int to float
        Remaining uncertainty of each rank's clock against any other clock, in seconds.
    spread : float
        Seconds between the earliest and the latest clock before the alignment.
    """

    operations: CollectiveOperations
    clock_uncertainty: Mapping[int, float]
    spread: float


def align_clocks(operations: CollectiveOperations, ranks: Ranks) -> ClockAlignment | None:
    """Shift entries so that no rank leaves a collective before the last member has entered it.

    Parameters
    ----------
    operations : CollectiveOperations
    ranks : Ranks
        Ranks of a machine share a clock; without machines, each rank has its own.

    Returns
    -------
    ClockAlignment or None
        None if all clocks agree already, no shift makes them agree, or there are more than 1,024.
    """
    clock = _clock_by_rank(operations, ranks)
    n_clocks = int(clock.max(initial=0)) + 1
    if n_clocks > _MAX_CLOCKS:
        return None
    bounds = np.full((n_clocks, n_clocks), np.inf)
    for entered, left, clocks in _by_group(operations, clock):
        cells = np.ix_(clocks, clocks)
        bounds[cells] = np.minimum(bounds[cells], _offset_bounds(entered, left))
    np.fill_diagonal(bounds, 0.0)
    if not (bounds < -_TOLERANCE_NS).any():
        return None
    tight = bounds + _TOLERANCE_NS
    np.fill_diagonal(tight, 0.0)
    for via in range(n_clocks):  # Floyd-Warshall
        np.minimum(tight, tight[:, via, None] + tight[via], out=tight)
    if (tight.diagonal() < 0.0).any():
        return None
    return _shift_clocks(operations, clock, tight)


def _clock_by_rank(operations: CollectiveOperations, ranks: Ranks) -> Int64Array:
    """Return the clock number of each rank."""
    size = int(operations.entries["rank"].max(initial=0)) + 1
    numbers: dict[str | int, int] = {}
    names = ((ranks.machine(rank) or rank) for rank in range(size))
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)


def _by_group(
    operations: CollectiveOperations, clock: Int64Array
) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """Yield, for each group that spans machines, entry times, exit times and clock numbers.

    Both times have the shape (n_operations, n_clocks): the last entry and the first exit per
    machine.
    """
    entries = operations.entries
    following = np.zeros(len(entries), dtype=np.int64)
    same = entries["rank"][1:] == entries["rank"][:-1]
    following[:-1] = np.where(same, entries["created"][1:], 0)
    rows = np.flatnonzero(~entries["is_p2p"] & (following > 0))
    order = rows[np.lexsort((entries["seq"][rows], entries["group"][rows]))]
    starts = np.flatnonzero(np.diff(entries["group"][order], prepend=-1))
    for part in np.split(order, starts[1:]) if len(order) else []:
        members = operations.members[int(entries["group"][part[0]])]
        clocks = np.unique(clock[[rank for rank in members if rank in operations.ranks]])
        if len(clocks) > 1:
            yield *_table(entries[part], following[part], clock, clocks), clocks


def _table(
    rows: npt.NDArray[np.void], following: Int64Array, clock: Int64Array, clocks: Int64Array
) -> tuple[Int64Array, Int64Array]:
    seqs, index = np.unique(rows["seq"], return_inverse=True)
    column = np.searchsorted(clocks, clock[rows["rank"]])
    entered = np.zeros((len(seqs), len(clocks)), dtype=np.int64)
    left = np.full((len(seqs), len(clocks)), np.iinfo(np.int64).max, dtype=np.int64)
    np.maximum.at(entered, (index, column), rows["created"])
    np.minimum.at(left, (index, column), following)
    is_whole = (entered > 0).all(axis=1)
    return entered[is_whole][-_MAX_OPERATIONS:], left[is_whole][-_MAX_OPERATIONS:]


def _offset_bounds(entered: Int64Array, left: Int64Array) -> Float64Array:
    """Return the upper bound of clock i minus clock j: the minimum over all operations."""
    n_operations, n_clocks = entered.shape
    least = np.full((n_clocks, n_clocks), np.inf)
    rows = max(1, _MAX_CELLS // n_clocks**2)
    for start in range(0, n_operations, rows):
        part = slice(start, start + rows)
        spans = left[part, :, None] - entered[part, None, :]
        least = np.minimum(least, spans.min(axis=0))
    return least


def _shift_clocks(
    operations: CollectiveOperations, clock: Int64Array, tight: Float64Array
) -> ClockAlignment:
    """Shift each clock to the middle of its interval relative to the best-known clock."""
    half = (tight + tight.T) / 2
    reference = int(np.argmin(np.where(np.isfinite(half), half, 1e18).sum(axis=0)))
    ahead = (tight[:, reference] - tight[reference, :]) / 2
    is_known = np.isfinite(ahead)
    shift = np.where(is_known, ahead, 0.0).astype(np.int64)[clock]
    entries = operations.entries.copy()
    for name in ("created", "started", "completed"):
        times = entries[name].astype(np.int64)
        moved = times - shift[entries["rank"]]
        entries[name] = np.where(times > 0, moved, times)
    alone = np.where(is_known, half[:, reference], 0.0) / SECOND
    clock_uncertainty = alone + _largest_other(alone)
    return ClockAlignment(
        replace(operations, entries=entries),
        {rank: float(clock_uncertainty[clock[rank]]) for rank in operations.ranks},
        float(np.ptp(ahead[is_known])) / SECOND,
    )


def _largest_other(values: Float64Array) -> Float64Array:
    """Return, for each value, the largest of the other values."""
    order = np.argsort(values)
    others = np.full(len(values), values[order[-1]])
    others[order[-1]] = values[order[-2]] if len(values) > 1 else 0.0
    return others
