"""Converts between times as text and nanoseconds since 1970 UTC."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an agent has neither of these installed
    import numpy.typing as npt
    import pandas as pd

__all__ = ["format_iso", "parse_moment", "to_timestamps"]

_EPOCH = datetime(1970, 1, 1)  # without a zone: UTC
_ISO = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z| ?[+-]\d\d(:?\d\d)?)?)?"


def parse_moment(text: str) -> int:
    """Return the nanoseconds since 1970 of a date or time; without a zone it is in UTC.

    Raises
    ------
    ValueError
        If the text is not an ISO 8601 date or time.

    Examples
    --------
    >>> parse_moment("1970-01-02") == parse_moment("1970-01-02T01:00:00+01:00")
    True
    >>> parse_moment("1970-01-02 01:00:00+01") == parse_moment("1970-01-02")
    True
    """
    import pandas as pd

    if not re.fullmatch(_ISO, text, re.ASCII):
        raise ValueError(f"{text!r} is not an ISO 8601 date or time")
    moment = pd.Timestamp(text)
    moment = moment.tz_localize("UTC") if moment.tz is None else moment.tz_convert("UTC")
    return int(moment.as_unit("ns").value)


def format_iso(moment: int) -> str:
    """Return a time in ISO 8601, UTC.

    Examples
    --------
    >>> format_iso(0)
    '1970-01-01T00:00:00Z'
    """
    # Pandas takes ten times as long, and an API response contains thousands of times.
    seconds, rest = divmod(int(moment), 10**9)
    digits = f"{rest:09d}" if rest % 1000 else f"{rest // 1000:06d}"
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    return f"{text}.{digits}Z" if rest else f"{text}Z"


def to_timestamps(moments: npt.ArrayLike) -> pd.DatetimeIndex:
    """Return nanoseconds as timestamps in UTC."""
    import numpy as np
    import pandas as pd

    return pd.DatetimeIndex(np.asarray(moments, dtype="datetime64[ns]"), tz="UTC")
