"""Parser for the timestamp at the start of a log line, in the common formats."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache

from forewarn.features.telemetry.parsers.log_line import read_line
from forewarn.features.telemetry.parsers.log_time import HostClock
from forewarn.features.time_units import DAY, MINUTE, SECOND

__all__ = ["lacks_year", "last_timestamp", "parse_line_timestamp"]

_HEAD_BYTES = 160  # bytes searched at the start of a line
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TIME_OF_DAY = rb"(?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_DATED = re.compile(
    rb"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T_ ]" + _TIME_OF_DAY
    + rb" ?(?P<zone>Z\b|UTC\b|[+-]\d\d:?\d\d\b)?"
    rb"|(?P<us_month>\d\d)/(?P<us_day>\d\d)/(?P<us_year>\d{4}) (?P<us_clock>\d\d:\d\d:\d\d)"
)  # fmt: skip
_DATED_GROUPS = ("year", "month", "day", "clock", "fraction", "zone")
_EPOCH_SECONDS = re.compile(rb"^\[?(?P<seconds>1\d{9})\.(?P<fraction>\d{3,9})\b")
_WITHOUT_YEAR = re.compile(  # glog format: level, month, day and time, without a year
    rb"\b[IWEFDC](?P<month>1[0-2]|0?[1-9])(?P<day>\d\d) +" + _TIME_OF_DAY
)
_SYSLOG_PREFIX = re.compile(rb"^(?:<\d+>|\[ *\w{3} \w{3} |\w{3} [ \d]\d \d\d:|\w+ *:\w+ *: )")


def parse_line_timestamp(line: bytes, before: int | None) -> int | None:
    """Return the time of a log line in nanoseconds since 1970 UTC, or None if it has none.

    Parameters
    ----------
    line : bytes
    before : int or None
        A time after the line was written. It determines the year of timestamps without one; if
        None, such lines have no time.

    Examples
    --------
    >>> parse_line_timestamp(b"[1970-01-01 00:00:01,500] [INFO] step 1", None)
    1500000000
    >>> parse_line_timestamp(b"[rank0]:[E101 00:00:02.5 a.cpp:1] x", 10**15)
    2500000000
    """
    head = line[:_HEAD_BYTES]
    if match := _DATED.search(head):
        return _with_date(match)
    if match := _EPOCH_SECONDS.search(head):
        return int(match["seconds"]) * SECOND + _nanoseconds(match["fraction"])
    if before is not None and (match := _WITHOUT_YEAR.search(head)):
        return _without_year(match, before)
    if _SYSLOG_PREFIX.match(head):
        return read_line(head.decode("latin-1"), HostClock(before=before)).time
    return None


def lacks_year(line: bytes) -> bool:
    """Return whether a line has a timestamp without a year."""
    head = line[:_HEAD_BYTES]
    return not _DATED.search(head) and _WITHOUT_YEAR.search(head) is not None


def last_timestamp(text: bytes, before: int | None, most_lines: int = 200) -> int | None:
    """Return the time of the last line that has one, searching only the last `most_lines` lines."""
    end = len(text)
    for _ in range(most_lines):
        start = text.rfind(b"\n", 0, max(end - 1, 0)) + 1
        time = parse_line_timestamp(text[start:end], before)
        if time is not None:
            return time
        if start == 0:
            return None
        end = start
    return None


def _with_date(match: re.Match[bytes]) -> int | None:
    year, month, day, clock, fraction, zone = match.group(*_DATED_GROUPS)
    if year is None:
        year, month, day, clock = match.group("us_year", "us_month", "us_day", "us_clock")
    seconds = _epoch_seconds(int(year), month, day, clock)
    if seconds is None:
        return None
    return seconds * SECOND + _nanoseconds(fraction) - _zone_offset(zone)


def _zone_offset(zone: bytes | None) -> int:
    """Return the offset of a time zone from UTC in nanoseconds; a missing zone means UTC."""
    if zone is None or zone in (b"Z", b"UTC"):
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (-minutes if zone[:1] == b"-" else minutes) * MINUTE


def _without_year(match: re.Match[bytes], before: int) -> int | None:
    """Return the latest matching time that is at most one day after `before`."""
    latest = (_EPOCH + dt.timedelta(microseconds=before // 1_000)).year + 1
    for year in (latest, latest - 1, latest - 2):
        seconds = _epoch_seconds(year, match["month"], match["day"], match["clock"])
        if seconds is not None and seconds * SECOND <= before + DAY:
            return seconds * SECOND + _nanoseconds(match["fraction"])
    return None


def _epoch_seconds(year: int, month: bytes, day: bytes, clock: bytes) -> int | None:
    minute = _epoch_minute(year, month, day, clock[:5])
    if minute is None:
        return None
    seconds = minute * 60 + min(int(clock[6:]), 59)
    return seconds if 0 <= seconds < 2**33 else None


@lru_cache(maxsize=1024)  # lines of a log share their minute
def _epoch_minute(year: int, month: bytes, day: bytes, hour_minute: bytes) -> int | None:
    """Return the minutes since 1970 UTC, or None if there is no such time."""
    hour, minute = hour_minute.split(b":")
    try:
        moment = dt.datetime(year, int(month), int(day), int(hour), int(minute), tzinfo=dt.UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // dt.timedelta(minutes=1)


def _nanoseconds(fraction: bytes | None) -> int:
    return int(fraction.ljust(9, b"0")) if fraction else 0
