"""Work in threads: numpy, pyarrow and compiled loops let go of the interpreter meanwhile."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cache
from itertools import repeat
from typing import TypeVar

__all__ = ["imap_threads", "map_threads", "n_threads", "parallel_for", "prefetch", "submit_ahead"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@cache  # the system reads a file for it
def n_threads() -> int:
    """Return how many threads work at a time: one for each core."""
    return os.cpu_count() or 1


def map_threads(
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


def submit_ahead(
    submit: Callable[[_Item], Future[_Result]], items: Iterable[_Item], n_ahead: int
) -> Generator[tuple[_Item, Future[_Result]]]:
    """Yield items and their futures in order, with `n_ahead` later items submitted.

    So few results wait in memory. Close the generator to cancel what was submitted ahead.
    """
    pending: deque[tuple[_Item, Future[_Result]]] = deque()
    try:
        for item in items:
            pending.append((item, submit(item)))
            if len(pending) > n_ahead:
                yield pending.popleft()
        while pending:
            yield pending.popleft()
    finally:
        for _, future in pending:
            future.cancel()


def imap_threads(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int | None = None
) -> Iterator[_Result]:
    """Yield what `work` makes of each item, in their order; threads work a little ahead.

    Examples
    --------
    >>> list(in_turn(abs, [-1, 2]))
    [1, 2]
    """
    threads = threads or n_threads()
    with (
        ThreadPoolExecutor(threads) as pool,
        closing(submit_ahead(lambda item: pool.submit(work, item), items, threads)) as submitted,
    ):
        for _, future in submitted:
            yield future.result()


def prefetch(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield the items of an iterator; a thread makes each while the one before is in use.

    Examples
    --------
    >>> list(prefetched(iter([1, 2, 3])))
    [1, 2, 3]
    """
    end = object()
    for item in imap_threads(lambda _: next(items, end), repeat(None), threads=1):
        if item is end:
            return
        yield item  # type: ignore[misc]  # `end` aside, they are items


def parallel_for(work: Callable[[int, int], None], n: int) -> None:
    """Call `work(first, last)` on parts of range(n), one for each thread."""
    n_parts = min(n_threads(), max(n, 1))
    edges = [n * i // n_parts for i in range(n_parts + 1)]
    map_threads(lambda part: work(edges[part], edges[part + 1]), range(n_parts))
