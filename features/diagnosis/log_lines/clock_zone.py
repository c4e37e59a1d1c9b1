"""Zone of log times that state none, from other data of the same job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from forewarn.features.time_units import HOUR, MINUTE, SECOND

__all__ = ["guess_zone"]

_STEP = 15 * MINUTE  # zones differ by multiples of it
_MIN_LEAD = HOUR
_MAX_LEAD = 14 * HOUR
_MAX_REST = 5 * MINUTE  # between the last line and the last exit or operation


def guess_zone(last_line: int, others: Sequence[int]) -> dt.tzinfo:
    """Return the zone in which logs end with the other parts, or UTC.

    Logs cannot go on for hours after the exits or operations of all ranks, so that a lead of whole
    quarters of an hour is a zone east of UTC. A lag may be a time-out and says nothing.

    Parameters
    ----------
    last_line : int
        Last time in logs, read as UTC, in nanoseconds since 1970 UTC.
    others : sequence of int
        Last times of parts that state their zone.

    Examples
    --------
    >>> ends = [0, 30 * SECOND]
    >>> str(guess_zone(8 * HOUR, ends)), str(guess_zone(-8 * HOUR, ends)), str(guess_zone(9, []))
    ('UTC+08:00', 'UTC', 'UTC')
    """
    if not others:
        return dt.UTC
    lead = last_line - max(others)
    shift = round(lead / _STEP) * _STEP
    is_zone = _MIN_LEAD <= shift <= _MAX_LEAD and abs(lead - shift) <= _MAX_REST
    return dt.timezone(dt.timedelta(seconds=shift // SECOND)) if is_zone else dt.UTC
