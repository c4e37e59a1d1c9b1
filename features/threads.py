"""Work in threads: numpy, pyarrow and compiled loops let go of the interpreter meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["in_threads", "n_threads", "shares"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def n_threads() -> int:
    """Return how many threads work at a time: one for each core."""
    return os.cpu_count() or 1


def shares(number: int) -> list[npt.NDArray[np.int64]]:
    """Deal the numbers below `number` out to the threads: for many things that are soon done.

    Examples
    --------
    >>> sum(len(share) for share in shares(5))
    5
    """
    return np.array_split(np.arange(number), n_threads())


def in_threads(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Return what `work` makes of each item, in their order.

    The first exception that an item raises is raised here, after what was begun is done.

    Examples
    --------
    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    with ThreadPoolExecutor(n_threads()) as pool:
        return list(pool.map(work, items))
