"""Schedule of GPU readings: every full interval exactly once."""

from __future__ import annotations

__all__ = ["first_due", "is_far_ahead", "is_on_time", "next_tick"]

_LATE_DIVISOR = 4  # a reading that starts within interval / 4 is on time
_MAX_INTERVALS_AHEAD = 6  # if the clock falls back further, the schedule restarts


def next_tick(now: int, interval: int) -> int:
    """Return the first full interval at or after `now`, in nanoseconds.

    >>> next_tick(599, 600), next_tick(600, 600), next_tick(601, 600)
    (600, 600, 1200)
    """
    return -(-now // interval) * interval


def is_on_time(now: int, scheduled: int, interval: int) -> bool:
    """Return whether a reading that starts now still counts as the scheduled one.

    >>> is_on_time(740, 600, 600), is_on_time(750, 600, 600)
    (True, False)
    """
    return now - scheduled < interval // _LATE_DIVISOR


def first_due(now: int, last: int, interval: int) -> int:
    """Return the next reading time; a time that has just passed counts if it was missed.

    Parameters
    ----------
    now, last : int
        Current time and last reading on disk, in nanoseconds since 1970 UTC.
    interval : int
        Nanoseconds.

    Examples
    --------
    >>> first_due(700, 0, 600), first_due(700, 600, 600), first_due(800, 0, 600)
    (600, 1200, 1200)
    """
    due = next_tick(now - interval // _LATE_DIVISOR, interval)
    return due if due > last or is_far_ahead(last, now, interval) else last + interval


def is_far_ahead(moment: int, now: int, interval: int) -> bool:
    """Return whether a time is so far ahead that the clock must have been set back.

    >>> is_far_ahead(4_300, 700, 600), is_far_ahead(4_301, 700, 600)
    (False, True)
    """
    return moment - now > _MAX_INTERVALS_AHEAD * interval
