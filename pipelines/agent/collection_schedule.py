"""The moments at which an agent reads its GPUs: full intervals, none twice, none left out."""

from __future__ import annotations

__all__ = ["first_due", "is_far_ahead", "is_on_time", "next_tick"]

_LATE_DIVISOR = 4  # a reading begun within this part of the interval is the scheduled one
_MAX_INTERVALS_AHEAD = 6  # intervals by which a clock may fall back before the schedule begins anew


def next_tick(now: int, interval: int) -> int:
    """Return the first full interval at or after `now`, in nanoseconds.

    >>> next_tick(599, 600), next_tick(600, 600), next_tick(601, 600)
    (600, 600, 1200)
    """
    return -(-now // interval) * interval


def is_on_time(now: int, scheduled: int, interval: int) -> bool:
    """Tell whether a reading that begins now still counts as the scheduled one.

    >>> begun_in_time(740, 600, 600), begun_in_time(750, 600, 600)
    (True, False)
    """
    return now - scheduled < interval // _LATE_DIVISOR


def first_due(now: int, last: int, interval: int) -> int:
    """Return the next moment to read at: one that has just passed counts if it was missed.

    Parameters
    ----------
    now, last : int
        The present and the last reading that is on disk, in nanoseconds since 1970 UTC.
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
    """Tell whether a moment lies so far ahead that the clock must have been set back.

    >>> far_ahead(4_300, 700, 600), far_ahead(4_301, 700, 600)
    (False, True)
    """
    return moment - now > _MAX_INTERVALS_AHEAD * interval
