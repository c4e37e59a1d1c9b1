"""Items made one ahead: while one is worked on, a thread makes the next."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["one_ahead"]

_Item = TypeVar("_Item")


def one_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield the items of an iterator; each is made while the one before is worked on.

    Examples
    --------
    >>> list(one_ahead(iter([1, 2, 3])))
    [1, 2, 3]
    """
    nothing = object()
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, items, nothing)
        while (item := following.result()) is not nothing:
            following = thread.submit(next, items, nothing)
            yield item  # type: ignore[misc]  # whatever is not `nothing` is an item
