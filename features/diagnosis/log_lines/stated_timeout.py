"""Time-outs that log lines state: how long a rank had waited before it gave up."""

from __future__ import annotations

import re

from forewarn.features.time_units import HOUR, MINUTE, SECOND

__all__ = ["stated_timeout"]

_MILLISECOND = SECOND // 1_000
_SPAN = re.compile(
    r"(?i)(?:timeout|timed out|time ?limit|stuck|waited|waiting|ran|without making progress|hung)"
    r"[^\n]{0,60}?(?P<number>\d{1,9})(?:\.\d+)? ?(?P<unit>ms|milliseconds?|s|sec|secs|seconds?|min|"
    r"minutes?|h|hours?)\b|Timeout\(ms\)=(?P<milliseconds>\d{1,9})"
)
_UNITS = {"m": MINUTE, "s": SECOND, "h": HOUR}
_LONGEST = 24 * HOUR


def stated_timeout(line: str) -> int | None:
    """Return the longest span that a line says was waited, in nanoseconds, or None.

    Examples
    --------
    >>> stated_timeout("Timed out waiting 30000ms for recv") // SECOND
    30
    >>> stated_timeout("watchdog got stuck for 480 seconds without progress") // SECOND
    480
    """
    spans = [_span(match) for match in _SPAN.finditer(line)]
    return max((span for span in spans if span <= _LONGEST), default=None)


def _span(match: re.Match[str]) -> int:
    if match["milliseconds"] is not None:
        return int(match["milliseconds"]) * _MILLISECOND
    unit = match["unit"].lower()
    is_milli = unit == "ms" or unit.startswith("milli")
    return int(match["number"]) * (_MILLISECOND if is_milli else _UNITS[unit[0]])
