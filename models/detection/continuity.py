"""Continuity: how long, and how far above a threshold, a machine has deviated without a break."""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import Float32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.threads import parallel_for

__all__ = ["continuity_levels", "longest_excursions"]


_LOWEST = np.float32(-np.inf)


@compiled
def _write_levels(
    scores: Float32Array, share: float, ordered: Float32Array, out: Float32Array
) -> None:
    """Write the level of every span; `ordered` holds its scores, missing ones as the lowest."""
    span = len(ordered)
    for machine in range(len(scores)):
        ordered[:] = _LOWEST
        n_missing, first = 0, _LOWEST
        for last in range(scores.shape[1]):
            leaving = _LOWEST
            if last >= span and not np.isnan(scores[machine, last - span]):
                leaving = scores[machine, last - span]
            elif last >= span:
                n_missing -= 1
            entering = scores[machine, last]
            if np.isnan(entering):
                entering = _LOWEST
                n_missing += 1
            _exchange(ordered, leaving, entering)
            if last < span - 1:
                continue
            if not np.isnan(scores[machine, last - span + 1]):
                first = scores[machine, last - span + 1]
            n = span - n_missing
            if 2 * n >= span and not np.isnan(scores[machine, last]):
                passing = int(np.ceil(share * n - 1e-9))
                level = ordered[n_missing + n - passing]
                out[machine, last] = min(level, first, scores[machine, last])


@compiled
def _exchange(ordered: Float32Array, leaving: np.float32, entering: np.float32) -> None:
    """Replace one value of an ascending array."""
    slot = 0
    while ordered[slot] < leaving:
        slot += 1
    while slot + 1 < len(ordered) and ordered[slot + 1] < entering:
        ordered[slot] = ordered[slot + 1]
        slot += 1
    while slot > 0 and ordered[slot - 1] > entering:
        ordered[slot] = ordered[slot - 1]
        slot -= 1
    ordered[slot] = entering


def continuity_levels(scores: Float32Array, span: int, share: float = 1.0) -> Float32Array:
    """Return the highest threshold at which each span is a continuity.

    A span is a continuity if its first and its last score and `share` of all scores in it exceed
    the threshold (Minder, section 4.4, step 2, has a share of 1). One pass covers all thresholds.

    Parameters
    ----------
    scores : ndarray of shape (n_machines, n), float32
        NaN where a score is missing. Missing scores do not count, but half have to be present. If
        the first one is missing, the one before it counts.
    span : int
        Scores per continuity.
    share : float
        Share of the present scores that has to exceed the threshold; 1 for all.

    Returns
    -------
    ndarray of shape (n_machines, n), float32
        Level at the last score of each span; -inf where there is no whole span.

    Examples
    --------
    >>> continuity_levels(np.float32([[1, 5, 4, 3]]), span=2).tolist()
    [[-inf, 1.0, 4.0, 3.0]]
    """
    out = np.full(scores.shape, -np.inf, dtype=np.float32)
    parallel_for(
        lambda a, b: _write_levels(scores[a:b], share, np.empty(span, np.float32), out[a:b]),
        len(scores),
    )
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
    """Return each machine's longest run of scores above a threshold, among the runs that ended.

    Parameters
    ----------
    scores : ndarray of shape (n_machines, n), float32
        NaN where a score is missing; it neither extends a run nor ends it as recovered.
    above, below : ndarray of shape (n_machines,), float32
        Thresholds for being in a run, and for having recovered.
    quiet : int
        Scores below `below`, with none at or above it in between, that end a run.

    Returns
    -------
    ndarray of shape (n_machines, 2), int
        First score, and the one after the last; 0, 0 if there is no run.

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
