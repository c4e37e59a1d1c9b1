"""Continuity: how long, and how far above a threshold, a machine has deviated without a break."""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import Float32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.threads import parallel_for

__all__ = ["continuity_levels", "longest_excursions"]


_LOWEST = np.float32(-np.inf)


@compiled
def _ranked(
    filled: Float32Array, machines: Int64Array, rank: int, ordered: Float32Array, out: Float32Array
) -> None:
    """Write to `out` the value of rank `rank` in the span ending at each window."""
    span = len(ordered)
    for machine in machines:
        ordered[:] = _LOWEST
        for w in range(filled.shape[1]):
            leaving = filled[machine, w - span] if w >= span else ordered[0]
            entering = filled[machine, w]
            slot = 0
            while ordered[slot] < leaving:
                slot += 1
            while slot + 1 < span and ordered[slot + 1] < entering:
                ordered[slot] = ordered[slot + 1]
                slot += 1
            while slot > 0 and ordered[slot - 1] > entering:
                ordered[slot] = ordered[slot - 1]
                slot -= 1
            ordered[slot] = entering
            out[machine, w] = ordered[rank]


def continuity_levels(
    scores: Float32Array, span: int, share: float = 1.0, floor: float = -np.inf
) -> Float32Array:
    """Return the highest threshold exceeded in `share` of the last `span` windows.

    A machine completes continuity (Minder, section 4.4, step 2) under a threshold exactly if its
    level reaches it, so one pass covers all thresholds.

    Parameters
    ----------
    scores : ndarray of shape (n_machines, n_windows), float32
        NaN where a score is missing; it exceeds no threshold.
    span : int
        Windows per continuity.
    share : float
        Share of these windows that has to exceed the threshold; 1 for all.
    floor : float
        A machine that never reaches this score may get -inf throughout, which saves time.

    Returns
    -------
    ndarray of shape (n_machines, n_windows), float32
        Level at the last window of each span; -inf where the span has too few windows.

    Examples
    --------
    >>> continuity_levels(np.float32([[1, 5, 4, 3]]), span=2).tolist()
    [[-inf, 1.0, 4.0, 3.0]]
    """
    out = np.full(scores.shape, -np.inf, dtype=np.float32)
    passing = int(np.ceil(round(share * span, 9)))
    machines = np.flatnonzero((scores >= floor).sum(axis=1) >= passing)
    # Missing scores, and those before the first window, count as the lowest.
    filled = np.where(np.isnan(scores), _LOWEST, scores)
    _ranked(filled, machines, span - passing, np.empty(span, dtype=np.float32), out)
    return out


@compiled
def _write_longest_excursions(
    scores: Float32Array,
    above: Float32Array,
    below: Float32Array,
    quiet: int,
    first: int,
    last: int,
    out: Int64Array,
) -> None:
    for machine in range(first, last):
        begin = end = n_quiet = 0
        for w in range(scores.shape[1]):
            score = scores[machine, w]
            if score >= above[machine]:
                if end < w or begin == end:
                    begin = w
                end, n_quiet = w + 1, 0
            elif score >= below[machine]:
                n_quiet = 0
            elif score < below[machine]:
                n_quiet += 1
                if n_quiet == quiet and end - begin > out[machine, 1] - out[machine, 0]:
                    out[machine, 0], out[machine, 1] = begin, end


def longest_excursions(
    scores: Float32Array, above: Float32Array, below: Float32Array, quiet: int
) -> Int64Array:
    """Return each machine's longest run of windows above a threshold, among the runs that ended.

    Parameters
    ----------
    scores : ndarray of shape (n_machines, n_windows), float32
        NaN where a score is missing; it neither extends a run nor ends it as recovered.
    above, below : ndarray of shape (n_machines,), float32
        Thresholds for being in a run, and for having recovered.
    quiet : int
        Windows below `below`, with none at or above it in between, that end a run.

    Returns
    -------
    ndarray of shape (n_machines, 2), int
        First window, and the one after the last; 0, 0 if there is no run.

    Examples
    --------
    >>> scores = np.float32([[9, 0, 9, 9, 0, 0, 9, 9, 9]])
    >>> longest_excursions(scores, np.float32([5]), np.float32([2]), quiet=2).tolist()
    [[2, 4]]
    """
    out = np.full((len(scores), 2), 0, dtype=np.int64)
    parallel_for(
        lambda a, b: _write_longest_excursions(scores, above, below, quiet, a, b, out), len(scores)
    )
    return out
