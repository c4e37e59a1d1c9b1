"""How far a machine is from the others of its task, leaving itself out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.threads import in_parallel

__all__ = ["FEWEST", "Deviations", "deviations", "medians_of_others", "peer_scores", "select"]

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.int64]

_LEAST_USUAL = 0.01  # of a range
FEWEST = 3  # machines: of two nobody can tell which is the odd one


@dataclass(frozen=True, slots=True)
class Deviations:
    """Every window against the median of the others of its group, place by place.

    Attributes
    ----------
    offset : ndarray of shape (n_windows, n_machines), float32
        Mean difference over the window; NaN where a sample is missing or too few others are there.
    square : ndarray of the same shape
        Mean squared difference.
    level : ndarray of the same shape
        Mean of the machine's own window.
    """

    offset: Floats
    square: Floats
    level: Floats


@compiled
def select(values: Floats, n: int, k: int) -> None:
    """Move the k-th smallest of the first n values to place k, no greater one before it."""
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
def _middle(values: Floats, n: int, out: Floats) -> None:
    """Write the two or three values from which the median without any one of them follows.

    Of an even number, the median of the others is the upper middle value for those of the lower
    half and the lower one for the rest; of an odd number, a mean of two of the middle three.
    """
    half = n // 2
    select(values, n, half)
    below, above = values[0], np.float32(np.inf)
    for i in range(1, half):
        below = max(below, values[i])
    for i in range(half + 1, n):
        above = min(above, values[i])
    out[0], out[1], out[2] = below, values[half], above


@compiled
def _without(value: np.float32, n: int, middle: Floats) -> np.float32:
    """Return the median of a group without one of its values; of three, the median of all.

    Of three machines without one of them the two that are left would be as far from their mean
    as the odd one is from one of them: all three would stand out.
    """
    if n == 3:
        return np.float32(middle[1])
    lower, upper = middle[0], middle[2]
    if n % 2 == 0:
        lower = upper = middle[1] if value <= middle[0] else middle[0]
    elif value < middle[1]:
        lower = middle[1]
    elif value > middle[1]:
        upper = middle[1]
    return np.float32(0.5 * (lower + upper))


@compiled
def _deviate(
    windows: Floats,
    present: Flags,
    members: Groups,
    fewest: int,
    offset: Floats,
    square: Floats,
    level: Floats,
    first: int,
    last: int,
) -> None:
    n_places = windows.shape[1]
    values = np.empty(len(members), np.float32)
    members_present = np.empty(len(members), np.int64)
    middle = np.empty(3, np.float32)
    share = np.float32(1.0 / n_places)
    for w in range(first, last):
        n = 0
        for machine in members:
            if present[w, machine]:
                members_present[n] = machine
                n += 1
        if n < fewest:
            continue
        for i in range(n):
            offset[w, members_present[i]] = square[w, members_present[i]] = level[
                w, members_present[i]
            ] = 0.0
        for position in range(n_places):
            for i in range(n):
                values[i] = windows[w, position, members_present[i]]
            _middle(values, n, middle)
            for i in range(n):
                machine = members_present[i]
                value = windows[w, position, machine]
                difference = value - _without(value, n, middle)
                offset[w, machine] += difference * share
                square[w, machine] += difference * difference * share
                level[w, machine] += value * share


@compiled
def _others(
    values: Floats, members: Groups, fewest: int, out: Floats, first: int, last: int
) -> None:
    sent = np.empty(len(members), np.float32)
    middle = np.empty(3, np.float32)
    for w in range(first, last):
        n = 0
        for machine in members:
            if not np.isnan(values[w, machine]):
                sent[n] = values[w, machine]
                n += 1
        if n < fewest:
            continue
        _middle(sent, n, middle)
        for machine in members:
            if not np.isnan(values[w, machine]):
                out[w, machine] = _without(values[w, machine], n, middle)


def deviations(windows: Floats, present: Flags, groups: Groups) -> Deviations:
    """Compare every window with the others of its group.

    The median leaves the machine itself out: of four machines it would be part of what it is
    compared with, and it is not moved by others that are faulty too, as long as they are fewer
    than the healthy ones.

    Parameters
    ----------
    windows : ndarray of shape (n_windows, n_places, n_machines), float32
    present : ndarray of shape (n_windows, n_machines), bool
        Windows without a missing sample.
    groups : ndarray of shape (n_machines,), int
        Number of the group of each machine.
    """
    shape = present.shape
    offset, square, level = (np.full(shape, np.nan, dtype=np.float32) for _ in range(3))
    for group in np.unique(groups):
        members = np.flatnonzero(groups == group)
        work = partial(_deviate, windows, present, members, FEWEST, offset, square, level)
        in_parallel(work, len(windows))
    return Deviations(offset, square, level)


def medians_of_others(values: Floats, groups: Groups) -> Floats:
    """Return, for every window and machine, the median of the others of its group.

    Parameters
    ----------
    values : ndarray of shape (n_windows, n_machines), float32
        NaN where there is none.
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
        in_parallel(partial(_others, values, members, FEWEST, out), len(values))
    return out


def peer_scores(windows: Floats, present: Flags) -> Floats:
    """Return how many median deviations each machine is from the median of all, window by window.

    The least that one can do, to compare with: no groups, no past, nothing learned.

    Parameters
    ----------
    windows : ndarray of shape (n_windows, n_places, n_machines), float32
    present : ndarray of shape (n_windows, n_machines), bool
    """
    means = np.where(present, windows.mean(axis=1), np.nan)
    out = np.full(present.shape, np.nan, dtype=np.float32)
    rows = np.flatnonzero(present.sum(axis=1) >= FEWEST)
    apart = np.abs(means[rows] - np.nanmedian(means[rows], axis=1, keepdims=True))
    usual = 1.4826 * np.nanmedian(apart, axis=1, keepdims=True)
    out[rows] = apart / (usual + _LEAST_USUAL)
    return out
