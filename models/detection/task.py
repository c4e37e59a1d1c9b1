"""A running task as the detector sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.models.detection.peer_deviation import FEWEST

__all__ = ["Task", "comparable"]

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

_SMALL = 4  # a smaller group says too little: its machines are compared with those of others


@dataclass(frozen=True, slots=True)
class Task:
    """The machines of a task in a span of time.

    Attributes
    ----------
    machines : tuple of str
    first_tick : int
        Number of the first tick, the same in every call.
    n_ticks : int
    series : callable
        Name of a metric to its samples, shape (n_machines, n_ticks), as they came; None where the
        task has no such metric. It is read when it is asked for.
    groups : ndarray of shape (n_machines,), int
        Machines that do the same work.
    weights : ndarray of shape (n_machines,)
        How many times as likely a false alarm on each machine may be; 1 in the mean.
    """

    machines: tuple[str, ...]
    first_tick: int
    n_ticks: int
    series: Callable[[str], Floats | None]
    groups: Numbers
    weights: npt.NDArray[np.float64]


def comparable(groups: Numbers) -> Numbers:
    """Return the groups to compare within: those that are too small become one.

    Examples
    --------
    >>> comparable(np.array([7, 7, 7, 7, 1, 2, 3])).tolist()
    [7, 7, 7, 7, -1, -1, -1]
    """
    numbers, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    large = count >= _SMALL
    left = int(count[~large].sum())
    if not large.any() or 0 < left < FEWEST:
        return np.zeros(len(groups), dtype=np.int64)
    return np.where(large[place], numbers[place], -1).astype(np.int64)
