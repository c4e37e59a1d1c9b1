"""How far each machine deviates from its peers, itself left out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.threads import parallel_for
from forewarn.models.detection.windows import Windows

__all__ = [
    "MIN_GROUP_SIZE",
    "Deviations",
    "medians_of_others",
    "partial_sort",
    "peer_deviations",
    "peer_scores",
]


_MIN_DEVIATION = 0.01  # share of a metric's range
MIN_GROUP_SIZE = 3  # machines; with two it is impossible to tell which one is faulty


@dataclass(frozen=True, slots=True)
class Deviations:
    """Differences of every window from the median of the peers, averaged over its places.

    Attributes
    ----------
    offset : ndarray of shape (n_windows, n_machines), float32
        Mean difference over the window; NaN if a sample or too many peers are missing.
    square : ndarray of the same shape
        Mean squared difference.
    level : ndarray of the same shape
        Mean of the machine's own window.
    """

    offset: Float32Array
    square: Float32Array
    level: Float32Array


@compiled
def partial_sort(values: Float32Array, n: int, k: int) -> None:
    """Move the k-th smallest of the first n values to position k, smaller values before it."""
    low, high = 0, n - 1
    while low < high:
        pivot, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            return


@compiled
def _middle(values: Float32Array, n: int, out: Float32Array) -> None:
    """Write the two or three values that determine the median without any one value.

    If n is even, the median of the others is the upper middle value for the lower half and the
    lower middle value for the upper half. If n is odd, it is a mean of two of the middle three.
    """
    half = n // 2
    partial_sort(values, n, half)
    below, above = values[0], np.float32(np.inf)
    for i in range(1, half):
        below = max(below, values[i])
    for i in range(half + 1, n):
        above = min(above, values[i])
    out[0], out[1], out[2] = below, values[half], above


@compiled
def _leave_out(n: int, middle: Float32Array, out: Float32Array) -> None:
    """Write a value, and the medians of the others for values below it, equal to it and above it.

    For three machines the median of all is used. With one left out, the other two are as far from
    their mean as the faulty machine is from one of them, and all three would deviate.
    """
    below, at, above = middle[0], middle[1], middle[2]
    half = np.float32(0.5)
    if n == 3:
        out[0] = out[1] = out[2] = out[3] = at
    elif n % 2 == 0:
        out[0], out[1], out[2], out[3] = below, at, at, below
    else:
        out[0] = at
        out[1], out[2], out[3] = half * (at + above), half * (below + above), half * (below + at)


@compiled
def _without(value: np.float32, others: Float32Array) -> np.float32:
    """Return the median of a group without one of its values."""
    if value < others[0]:
        return np.float32(others[1])
    return np.float32(others[3] if value > others[0] else others[2])


@compiled
def _compare(
    row: Float32Array, members: Int64Array, n: int, values: Float32Array, out: Float32Array
) -> None:
    """Write each member's part of its window: difference, squared difference, own value."""
    middle, others = np.empty(3, np.float32), np.empty(4, np.float32)
    for i in range(n):
        values[i] = row[members[i]]
    _middle(values, n, middle)
    _leave_out(n, middle, others)
    for i in range(n):
        value = row[members[i]]
        difference = value - _without(value, others)
        out[0, i], out[1, i], out[2, i] = difference, difference * difference, value


@compiled
def _deviate(
    rows: Float32Array,
    starts: Int64Array,
    n_places: int,
    present: BoolArray,
    other_members: BoolArray,
    members: Int64Array,
    min_size: int,
    out: Float32Array,
    first: int,
    last: int,
) -> None:
    """Compare row by row; rows shared with the previous window are reused if members match."""
    n, share = 0, np.float32(1.0 / n_places)
    values = np.empty(len(members), np.float32)
    members_present = np.empty(len(members), np.int64)
    compared = np.empty((n_places, 3, len(members)), np.float32)
    sums = np.empty((3, len(members)), np.float32)
    row_in = np.full(n_places, -1)
    for w in range(first, last):
        if w == first or other_members[w]:
            n = _present_members(present[w], members, members_present)
            row_in[:] = -1
        if n < min_size:
            continue
        sums[:, :n] = 0.0
        for row in range(starts[w], starts[w] + n_places):
            slot = row % n_places
            if row_in[slot] != row:
                _compare(rows[row], members_present, n, values, compared[slot])
                row_in[slot] = row
            for kind in range(3):
                for i in range(n):
                    sums[kind, i] += compared[slot, kind, i] * share
        for kind in range(3):
            for i in range(n):
                out[kind, w, members_present[i]] = sums[kind, i]


@compiled
def _present_members(present: BoolArray, members: Int64Array, out: Int64Array) -> int:
    n = 0
    for machine in members:
        if present[machine]:
            out[n] = machine
            n += 1
    return n


def _middles(values: Float32Array, n: Int64Array) -> Float32Array:
    """Return `_middle` of each row, shape (n_rows, 3); NaN for groups that are too small.

    Sorting in numpy processes many values at a time.
    """
    out = np.full((len(values), 3), np.nan, dtype=np.float32)
    for count in np.unique(n[n >= MIN_GROUP_SIZE]).tolist():
        rows, half = np.flatnonzero(n == count), count // 2
        parts = np.partition(values[rows], half, axis=1)
        parts[:, half + 1 :].partition(0, axis=1)
        out[rows, 0] = parts[:, :half].max(axis=1)
        out[rows, 1:] = parts[:, half : half + 2]
    return out


@compiled
def _write_others(
    values: Float32Array,
    middles: Float32Array,
    n: Int64Array,
    members: Int64Array,
    min_size: int,
    out: Float32Array,
) -> None:
    others = np.empty(4, np.float32)
    for w in range(len(values)):
        if n[w] >= min_size:
            _leave_out(n[w], middles[w], others)
            for i in range(len(members)):
                if not np.isnan(values[w, i]):
                    out[w, members[i]] = _without(values[w, i], others)


def _others(
    values: Float32Array, members: Int64Array, out: Float32Array, first: int, last: int
) -> None:
    sent = values[first:last].take(members, axis=1)
    n = (~np.isnan(sent)).sum(axis=1)
    _write_others(sent, _middles(sent, n), n, members, MIN_GROUP_SIZE, out[first:last])


def peer_deviations(windows: Windows, present: BoolArray, groups: Int64Array) -> Deviations:
    """Compare every window with those of the peers.

    The median leaves the machine itself out. Among four machines it would otherwise be part of
    its own reference. Other faulty machines do not move the median as long as the healthy ones
    are the majority.

    Parameters
    ----------
    windows : Windows
        One entry per window.
    present : ndarray of shape (n_windows, n_machines), bool
        Windows without missing samples.
    groups : ndarray of shape (n_machines,), int
        Group number of each machine.
    """
    out = np.full((3, *present.shape), np.nan, dtype=np.float32)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        of_group = present[:, members]
        other_members = np.ones(len(windows), dtype=bool)
        other_members[1:] = (of_group[1:] != of_group[:-1]).any(axis=1)
        rows = (windows.rows, windows.first, windows.n_places)
        work = partial(_deviate, *rows, present, other_members, members, MIN_GROUP_SIZE, out)
        parallel_for(work, len(windows))
    return Deviations(*out)


def medians_of_others(values: Float32Array, groups: Int64Array) -> Float32Array:
    """Return, for every window and machine, the median of its peers.

    Parameters
    ----------
    values : ndarray of shape (n_windows, n_machines), float32
        NaN where a value is missing.
    groups : ndarray of shape (n_machines,), int

    Examples
    --------
    >>> four = np.float32([[1.0, 2.0, 3.0, 9.0]])
    >>> medians_of_others(four, np.zeros(4, int)).tolist()
    [[3.0, 3.0, 2.0, 2.0]]
    """
    out = np.full(values.shape, np.nan, dtype=np.float32)
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        parallel_for(partial(_others, values, members, out), len(values))
    return out


def peer_scores(windows: Windows, present: BoolArray) -> Float32Array:
    """Return each machine's distance from the median of all, in median deviations, per window.

    The simplest baseline: no groups, no machine baseline, nothing fitted.

    Parameters
    ----------
    windows : Windows
        One entry per window.
    present : ndarray of shape (n_windows, n_machines), bool
    """
    means = np.where(present, windows.apart().mean(axis=1), np.nan)
    out = np.full(present.shape, np.nan, dtype=np.float32)
    rows = np.flatnonzero(present.sum(axis=1) >= MIN_GROUP_SIZE)
    distance = np.abs(means[rows] - np.nanmedian(means[rows], axis=1, keepdims=True))
    deviation = 1.4826 * np.nanmedian(distance, axis=1, keepdims=True)
    out[rows] = distance / (deviation + _MIN_DEVIATION)
    return out
