"""A map over slices of work with results in order: what every executor has in common."""

from __future__ import annotations

import datetime as dt
import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any, Protocol, TypeVar

import numpy as np

__all__ = ["Pending", "SliceMap", "check_plain", "check_task", "in_order"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Result_co = TypeVar("_Result_co", covariant=True)

_PLAIN = (bool, int, float, str, bytes, PurePath, dt.date, dt.timedelta, np.generic, type(None))


class SliceMap(Protocol):
    """What calls a task on slices, at several places at once."""

    def map(self, task: Callable[[_Item], _Result], items: Iterable[_Item], /) -> Iterator[_Result]:
        """Yield what `task` makes of each item, in the order of the items.

        Parameters
        ----------
        task : callable
            A function of a module. It may run more than once for an item, so it returns what it
            found, or writes one file under a temporary name and renames it.
        items : iterable
            Plain values each: paths, numbers, texts, dates, arrays, and tuples, lists, sets and
            dictionaries of them. Read as results are taken, a few ahead.

        Raises
        ------
        TypeError
            If the task is no function of a module, or an item or a result is no plain value.
        JobError
            If workers die at the same items again and again, or a cluster cannot be reached.
        """
        ...


class Pending(Protocol[_Result_co]):
    """A result to come."""

    def result(self) -> _Result_co:
        """Wait for it."""
        ...

    def cancel(self) -> object:
        """Give it up."""
        ...


def in_order(
    submit: Callable[[_Item], Pending[_Result]], items: Iterable[_Item], ahead: int
) -> Iterator[_Result]:
    """Yield the results of submitted items in order, with at most `ahead` of them under way.

    So no more results wait in memory than workers could make meanwhile.
    """
    pending: deque[Pending[_Result]] = deque()
    source = iter(items)
    try:
        for item in source:
            pending.append(submit(check_plain(item)))
            if len(pending) >= ahead:
                yield check_plain(pending.popleft().result())
        while pending:
            yield check_plain(pending.popleft().result())
    finally:
        for future in pending:
            future.cancel()


def check_task(task: Callable[..., Any]) -> None:
    """Refuse what another process could not import by its name.

    Raises
    ------
    TypeError
    """
    module = sys.modules.get(getattr(task, "__module__", ""))
    name = getattr(task, "__qualname__", "")
    if not inspect.isfunction(task) or getattr(module, name, None) is not task:
        raise TypeError(f"`task` is {task!r}, expected a function of a module.")


def check_plain(value: _Item) -> _Item:
    """Return a value that may go to another process, such as paths, numbers, texts and arrays.

    Raises
    ------
    TypeError
        If it is, or holds, anything else: an object of ours would be pickled, and be read by
        whatever version of forewarn the other process has.

    Examples
    --------
    >>> check_plain({"date=2025-01-01": [1, 2]})
    {'date=2025-01-01': [1, 2]}
    """
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise TypeError("found an array of objects in a slice, expected numbers or texts.")
    elif isinstance(value, dict):
        for part in (*value.keys(), *value.values()):
            check_plain(part)
    elif type(value) in (tuple, list, set, frozenset):
        for part in value:  # type: ignore[attr-defined]  # a container, as the line above says
            check_plain(part)
    elif not isinstance(value, _PLAIN):
        raise TypeError(
            f"found {type(value).__name__} in a slice, expected paths, numbers, texts, dates, "
            "arrays, and tuples, lists, sets and dictionaries of them."
        )
    return value
