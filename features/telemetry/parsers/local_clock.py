"""Local times as nvidia-smi prints them, without a zone."""

from __future__ import annotations

import datetime as dt

__all__ = ["clock_time"]

_FORMATS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%a %b %d %H:%M:%S %Y")
_EPOCH = dt.datetime(1970, 1, 1)


def clock_time(text: str) -> int | None:
    """Return the nanoseconds since 1970 on the host's clock; None if the text is no time.

    Examples
    --------
    >>> clock_time("1970/01/01 00:00:01.500"), clock_time("Thu Jan  1 00:01:00 1970")
    (1500000000, 60000000000)
    """
    for form in _FORMATS:
        try:
            since = dt.datetime.strptime(text, form) - _EPOCH
        except ValueError:
            continue
        return since // dt.timedelta(microseconds=1) * 1_000
    return None
