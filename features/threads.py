"""Thread pools; numpy, pyarrow and compiled loops release the GIL."""

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


@cache  # reading it opens a file
def n_threads() -> int:
    """Return the default number of threads, one per core."""
    return os.cpu_count() or 1


def map_threads(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int | None = None
) -> list[_Result]:
    """Apply `work` to all items in threads and return the results in order.

    `threads` is the number of threads, by default one per core. The first exception is raised after
    all started items have finished.

    Examples
    --------
    >>> map_threads(abs, [-1, 2])
    [1, 2]
    """
    threads = threads or n_threads()
    if threads == 1:  # starting a thread takes longer than reading many a column
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def submit_ahead(
    submit: Callable[[_Item], Future[_Result]], items: Iterable[_Item], n_ahead: int
) -> Generator[tuple[_Item, Future[_Result]]]:
    """Yield items with their futures in order, while up to `n_ahead` later items are submitted.

    The limit bounds the results in memory. Closing the generator cancels pending items.
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
    """Apply `work` to items in threads and yield the results in order; threads run a little ahead.

    Examples
    --------
    >>> list(imap_threads(abs, [-1, 2]))
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
    """Yield the items of an iterator; a thread computes the next item while one is in use.

    Examples
    --------
    >>> list(prefetch(iter([1, 2, 3])))
    [1, 2, 3]
    """
    end = object()
    for item in imap_threads(lambda _: next(items, end), repeat(None), threads=1):
        if item is end:
            return
        yield item  # type: ignore[misc]  # `end` aside, they are items


def parallel_for(work: Callable[[int, int], None], n: int) -> None:
    """Call `work(first, last)` on parts of range(n), one per thread."""
    n_parts = min(n_threads(), max(n, 1))
    edges = [n * i // n_parts for i in range(n_parts + 1)]
    map_threads(lambda part: work(edges[part], edges[part + 1]), range(n_parts))
