"""Lists in chunks that fit the parameter limit of a database statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["chunks"]

Value = TypeVar("Value")
CHUNK_SIZE = 5_000  # SQLite accepts 32,766 parameters, PostgreSQL 65,535


def chunks(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    """Yield the values in order, 5,000 at a time.

    Examples
    --------
    >>> [len(chunk) for chunk in chunks(range(12_000))]
    [5000, 5000, 2000]
    """
    for start in range(0, len(values), CHUNK_SIZE):
        yield values[start : start + CHUNK_SIZE]
