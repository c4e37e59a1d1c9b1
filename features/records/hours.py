"""The hours in which records lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.table import Records
from forewarn.features.time_units import HOUR, Nanoseconds

__all__ = ["Hours", "bucket_length", "extent"]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def bucket_length(interval: int) -> Nanoseconds:
    """Return the length of an "hour": the least number of whole intervals that fills one.

    Examples
    --------
    >>> bucket_length(600 * 10**9) == HOUR
    True
    """
    return Nanoseconds(-(-HOUR // interval) * interval)


class Hours(NamedTuple):
    """The hours of a grid: the number of the first one since 1970, and how many there are."""

    first: int
    number: int

    @classmethod
    def of(cls, records: Records, counted: BoolArray) -> Hours:
        """Return the hours that hold the rows that count, and one more."""
        start, end = extent(records.time, counted)
        if start == end:
            return cls(0, 1)
        bucket = bucket_length(records.interval)
        first = start // bucket
        return cls(first, (end - 1) // bucket - first + 2)

    @classmethod
    def joined(cls, parts: Iterable[Hours]) -> Hours:
        """Return the hours of all slices; those of one without a row that counts are none.

        Examples
        --------
        >>> Hours.joined([Hours(5, 3), Hours(0, 1), Hours(4, 2)])
        Hours(first=4, number=4)
        """
        held = [hours for hours in parts if hours.number > 1] or [cls(0, 1)]
        first = min(hours.first for hours in held)
        return cls(first, max(hours.first + hours.number for hours in held) - first)


@compiled
def extent(values: IntArray, counted: BoolArray) -> tuple[int, int]:
    """Return the least of the values that count, and one more than the greatest; 0, 0 of none."""
    low, high = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for row in range(len(values)):
        if counted[row]:
            low, high = min(low, values[row]), max(high, values[row])
    return (low, high + 1) if low <= high else (0, 0)
