"""Times that scripts print around the output of a tool: a line of `date`, or before each line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.features.telemetry.parsers.log_time import month_number, parse_iso_time

__all__ = ["ScriptTime", "split_time", "stamped_lines", "with_script_time"]

_CLOCK = (
    r"(?P<hour>\d{1,2})[:-](?P<minute>\d\d)(?:[:-](?P<second>\d\d))?"
    r"(?:[.,](?P<fraction>\d{1,9})\d*)?"
)
_HALF = r"(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?"
_ZONE = r"(?: ?(?P<zone>Z|[+-]\d\d(?::?\d\d)?|[A-Z]{3,5})(?![\w:]))?"
_WEEKDAY, _MONTH = r"(?:[A-Z][a-z]{2,8},? +)?", r"(?P<month>[A-Z][a-z]{2,8})\.?"
_FORMS = (
    re.compile(
        r"(?P<year>20\d\d)[-/.](?P<number>\d\d)[-/.](?P<day>\d\d)[T_ -]+" + _CLOCK + _HALF + _ZONE
    ),
    re.compile(  # date +%Y%m%d, then the clock with or without separators
        r"(?P<year>20\d\d)(?P<number>[01]\d)(?P<day>[0-3]\d)[T_ -]*"
        r"(?P<hour>[0-2]\d):?(?P<minute>[0-5]\d):?(?P<second>[0-5]\d)?(?![\d.])" + _ZONE
    ),
    re.compile(  # date, in its own and in the English form
        rf"{_WEEKDAY}{_MONTH} +(?P<day>\d{{1,2}}),? +{_CLOCK}{_HALF}{_ZONE} +(?P<year>20\d\d)"
    ),
    re.compile(
        rf"{_WEEKDAY}(?P<day>\d{{1,2}}) +{_MONTH} +(?P<year>20\d\d),? +{_CLOCK}{_HALF}{_ZONE}"
    ),
)  # fmt: skip
_EPOCH = re.compile(r"(?P<seconds>1[5-9]\d{8}|2[01]\d{8})(?P<fraction>\.\d{1,9})?(?![\d.])")
# What scripts put before and after a time.
_OPENS = re.compile(
    r"[\s#=*\-\[(<]*(?:(?:date|datetime|time|timestamp|ts)\s*[:=]\s*)?[\[(]?", re.IGNORECASE
)
_CLOSES = re.compile(r"[\])>]?[\s,;:]*")
_DECORATION = re.compile(r"[\s#=*\-\])>]*")
_MAX_TIME_LINE_CHARS = 100  # of a line that holds nothing but a time
_UTC_ZONES = ("Z", "UTC", "GMT")


class ScriptTime(NamedTuple):
    """A time that a script printed.

    Attributes
    ----------
    moment : int
        Nanoseconds since 1970.
    utc : bool
        The script printed the zone; otherwise the time is on the clock of the host.
    """

    moment: int
    utc: bool


def split_time(line: str) -> tuple[ScriptTime | None, str]:
    """Return the time at the beginning of a line, None if it begins with none, and the rest.

    Examples
    --------
    >>> split_time("GPU 0")
    (None, 'GPU 0')
    >>> split_time("Wed Jan  1 00:00:00 UTC 2025: GPU 0")
    (ScriptTime(moment=1735689600000000000, utc=True), 'GPU 0')
    """
    start = _OPENS.match(line)
    begin = start.end() if start else 0
    for form in (*_FORMS, _EPOCH):
        match = form.match(line, begin)
        time = _time(match) if match else None
        if match and time is not None:
            closing = _CLOSES.match(line, match.end())
            return time, line[closing.end() if closing else match.end() :]
    return None, line


def _time(match: re.Match[str]) -> ScriptTime | None:
    if match.re is _EPOCH:
        fraction = (match["fraction"] or "").removeprefix(".")
        return ScriptTime(int(match["seconds"] + fraction.ljust(9, "0")), True)
    parts = match.groupdict()
    month = month_number(parts["month"]) if "month" in parts else int(parts["number"])
    zone = parts.get("zone") or ""
    if month is None:
        return None
    hour = int(parts["hour"])
    if half := parts.get("half"):
        hour = hour % 12 + (12 if half in "Pp" else 0)
    zoned = bool(zone) and (zone in _UTC_ZONES or zone.startswith(("+", "-")))
    offset = "+00:00" if not zoned or zone in _UTC_ZONES else _offset(zone)
    text = (
        f"{parts['year']}-{month:02}-{int(parts['day']):02}T{hour:02}:{parts['minute']}:"
        f"{parts['second'] or '00'}{offset}"
    )
    moment = parse_iso_time(text, int((parts.get("fraction") or "0").ljust(9, "0")), 0)
    return None if moment is None else ScriptTime(moment, zoned)


def _offset(zone: str) -> str:
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return f"{zone[0]}{digits[:2]}:{digits[2:]}"


def stamped_lines(text: str) -> Iterator[tuple[str, ScriptTime | None]]:
    """Yield each line of a text with the last time that stood alone on a line before it.

    Lines that hold nothing but a time are not yielded.
    """
    last: ScriptTime | None = None
    for line in text.replace("\0", "").splitlines():
        may_be_time = len(line) <= _MAX_TIME_LINE_CHARS and line.count(",") < 2 and "|" not in line
        time, rest = split_time(line) if may_be_time else (None, line)
        if time is not None and _DECORATION.fullmatch(rest):
            last = time
        elif line.strip():
            yield line, last


def with_script_time(reading: GpuReading, time: ScriptTime | None) -> GpuReading:
    """Return a reading with the time of the script, unless it has a time of its own."""
    if time is None or reading.time is not None:
        return reading
    return replace(reading, time=time.moment, utc=time.utc)
