"""The hours in which records lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from forewarn.features.records.line import Line
from forewarn.features.time_units import HOUR, Nanoseconds

__all__ = ["Hours", "bucket_length"]


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
    def of(cls, line: Line, interval: int) -> Hours:
        """Return the hours that hold the runs that count, and one more.

        Parameters
        ----------
        line : Line
        interval : int
            Nanoseconds between two records of a GPU.
        """
        counted = line.counted
        if not counted.any():
            return cls(0, 1)
        bucket = bucket_length(interval)
        first = int(line.time[counted].min()) // bucket
        return cls(first, int(line.last_time[counted].max()) // bucket - first + 2)

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
