"""Time spans as text."""

from __future__ import annotations

import re

from forewarn.features.time_units import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
)

__all__ = ["format_duration", "parse_duration"]

# Name, seconds, and the length in seconds from which the unit is not used.
_UNITS = (
    ("days", SECONDS_PER_DAY, float("inf")),
    ("h", SECONDS_PER_HOUR, float("inf")),
    ("min", SECONDS_PER_MINUTE, SECONDS_PER_DAY),
    ("s", 1.0, 2 * SECONDS_PER_HOUR),
    ("ms", 0.001, 1.0),
)
_MAX_DURATION = 2**63 - 1  # times are nanoseconds in 64 bits
_NANOSECONDS = {"ms": 10**6, "s": SECOND, "min": MINUTE, "h": HOUR, "d": DAY}


def format_duration(seconds: float) -> str:
    """Format a time span in the largest unit that needs at most one decimal.

    If no unit fits, the span is rounded to three significant digits.

    Parameters
    ----------
    seconds : float
        At least 0.

    Examples
    --------
    >>> [format_duration(seconds) for seconds in (86_400, 5400, 600, 90, 605, 0.25, 86_399.7)]
    ['1 day', '1.5 h', '10 min', '1.5 min', '605 s', '250 ms', '24 h']
    """
    for name, unit, too_long in _UNITS:
        amount = seconds / unit
        if amount >= 1 and seconds < too_long and abs(amount - round(amount, 1)) < 1e-9 * amount:
            return _with_unit(round(amount, 1), name)
    fitting = (unit for unit in _UNITS[1::2] if seconds >= 2 * unit[1])
    name, unit, _ = next(fitting, _UNITS[3])
    return _with_unit(float(f"{seconds / unit:.3g}"), name)


def _with_unit(amount: float, name: str) -> str:
    return "1 day" if (amount, name) == (1, "days") else f"{amount:g} {name}"


def parse_duration(text: object) -> int:
    """Return the nanoseconds of a duration such as "10min", "4h" or "3d".

    Raises
    ------
    ValueError
        If it is not one.

    Examples
    --------
    >>> parse_duration("10min")
    600000000000
    """
    match = (
        re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|d)", text) if isinstance(text, str) else None
    )
    nanoseconds = float(match[1]) * _NANOSECONDS[match[2]] if match else 0.0
    length = round(nanoseconds) if nanoseconds < _MAX_DURATION else 0
    if length <= 0:
        raise ValueError('expected a duration such as "10min", "4h" or "3d"')
    return length
