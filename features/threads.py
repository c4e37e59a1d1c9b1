"""Work in threads: numpy, pyarrow and compiled loops let go of the interpreter meanwhile."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

__all__ = ["in_parallel", "in_threads", "in_turn", "n_threads"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@cache  # the system reads a file for it
def n_threads() -> int:
    """Return how many threads work at a time: one for each core."""
    return os.cpu_count() or 1


def in_threads(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int | None = None
) -> list[_Result]:
    """Return what `work` makes of each item, in their order; `threads` work, or one a core.

    The first exception that an item raises is raised here, after what was begun is done.

    Examples
    --------
    >>> in_threads(abs, [-1, 2])
    [1, 2]
    """
    threads = threads or n_threads()
    if threads == 1:  # to start one and to wait for it takes longer than many a column of a file
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def in_turn(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int | None = None
) -> Iterator[_Result]:
    """Yield what `work` makes of each item, in their order.

    Threads work only a little ahead of whoever takes the results: those that nobody has taken yet
    are few.

    Examples
    --------
    >>> list(in_turn(abs, [-1, 2]))
    [1, 2]
    """
    threads = threads or n_threads()
    ahead: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                ahead.append(pool.submit(work, item))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for left in ahead:
                left.cancel()


def in_parallel(work: Callable[[int, int], None], n: int) -> None:
    """Call `work(first, last)` on parts of range(n), one for each thread."""
    n_parts = min(n_threads(), max(n, 1))
    edges = [n * i // n_parts for i in range(n_parts + 1)]
    in_threads(lambda part: work(edges[part], edges[part + 1]), range(n_parts))
