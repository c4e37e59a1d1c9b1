"""Units of time, as types for mypy and as constants."""

from __future__ import annotations

import datetime as dt
from typing import Final, NewType

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "SECONDS_PER_DAY",
    "SECONDS_PER_HOUR",
    "SECONDS_PER_MINUTE",
    "Nanoseconds",
    "RecordCount",
    "date_of",
    "midnight_of",
]

Nanoseconds = NewType("Nanoseconds", int)
RecordCount = NewType("RecordCount", int)

SECOND: Final = Nanoseconds(1_000_000_000)
MINUTE: Final = Nanoseconds(60 * SECOND)
HOUR: Final = Nanoseconds(60 * MINUTE)
DAY: Final = Nanoseconds(24 * HOUR)

SECONDS_PER_MINUTE: Final = 60
SECONDS_PER_HOUR: Final = 3_600
SECONDS_PER_DAY: Final = 86_400

_EPOCH = dt.date(1970, 1, 1)


def date_of(moment: int) -> dt.date:
    """Return the UTC date of a time in nanoseconds since 1970.

    Examples
    --------
    >>> date_of(DAY - 1)
    datetime.date(1970, 1, 1)
    """
    return _EPOCH + dt.timedelta(days=moment // DAY)


def midnight_of(date: dt.date) -> Nanoseconds:
    """Return the start of a UTC date in nanoseconds since 1970.

    Examples
    --------
    >>> midnight_of(dt.date(1970, 1, 2)) == DAY
    True
    """
    return Nanoseconds((date - _EPOCH).days * DAY)
