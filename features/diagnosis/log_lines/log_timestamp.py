"""Parser for the timestamp at the start of a log line, in the forms of `log_time_forms`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from forewarn.features.diagnosis.log_lines.iso_times import iso_layout
from forewarn.features.diagnosis.log_lines.log_time_forms import (
    HEAD_BYTES,
    ISO,
    OBJECT_KEY,
    TimeForm,
    matching_forms,
)
from forewarn.features.telemetry.parsers.log_time import month_number
from forewarn.features.time_units import DAY, MINUTE, SECOND

__all__ = ["lacks_year", "last_timestamp", "parse_line_timestamp"]

_KEY_BYTES = 4_096  # bytes of an object searched for the key of its time
_VALUE_BYTES = 48
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_CLOCK_TOLERANCE = 5 * MINUTE  # nanoseconds by which a clock without a date may be after `before`
_MAX_AGE = 366 * DAY  # nanoseconds; an older whole number is no time but an amount
_LEAP_YEARS = 8

_CLOCK_GROUPS = ("clock", "fraction", "micros", "half", "zone")  # in the order of `ISO`

_Groups: TypeAlias = Mapping[str, bytes | None]


def parse_line_timestamp(
    line: bytes, before: int | None, *, zone: dt.tzinfo = dt.UTC
) -> int | None:
    """Return the time of a log line in nanoseconds since 1970 UTC, or None if it has none.

    Parameters
    ----------
    line : bytes
    before : int or None
        A time after the line was written. It determines the year of timestamps without one, and
        the day of those without a date (the latest that fits); if None, such lines have no time.
    zone : datetime.tzinfo
        Zone of timestamps without an offset from UTC. Names of zones other than UTC and GMT are
        ambiguous and count as none. Of an hour that occurs twice, the first is meant.

    Examples
    --------
    >>> parse_line_timestamp(b"[1970-01-01 00:00:01,500] [INFO] step 1", None)
    1500000000
    >>> parse_line_timestamp(b"[rank0]:[E101 00:00:02.5 a.cpp:1] x", 10**15)
    2500000000
    """
    layout = iso_layout(line, zone)
    if layout is not None:
        time = layout.time(line)
        if time is not None:
            return time
    if line[:1] == b"{" and (key := OBJECT_KEY.search(line[:_KEY_BYTES])):
        time = _parse(line[key.start() + 1 : key.end() + _VALUE_BYTES], before, zone)
        if time is not None:
            return time
    return _parse(line[:HEAD_BYTES], before, zone)


def _parse(head: bytes, before: int | None, zone: dt.tzinfo) -> int | None:
    if match := ISO.search(head):
        year, month, day, *clock = match.groups()
        return _moment(int(year), int(month), int(day), clock, zone)
    for form in matching_forms(head):
        time = _parse_form(form, head, before, zone)
        if time is not None:
            return time
    return None


def _parse_form(form: TimeForm, head: bytes, before: int | None, zone: dt.tzinfo) -> int | None:
    match = form.expression.search(head)
    if match is None:
        return None
    groups = match.groupdict()
    match form.kind:
        case "date":
            year, day = int(groups["year"]), int(groups["day"])
            return _moment(year, _month(groups), day, _clock(groups), zone)
        case "short date":
            first, second, third = (int(groups[each]) for each in ("first", "second", "third"))
            date = (first, second, third) if first > 12 else (third, first, second)
            return _moment(2_000 + date[0], *date[1:], _clock(groups), zone)
        case "epoch":
            return _since_epoch(groups, before)
    if before is None:
        return None
    return (_without_year if form.kind == "no year" else _without_date)(groups, before, zone)


def lacks_year(line: bytes) -> bool:
    """Return whether a line has a timestamp without a year or without a date."""
    is_complete = parse_line_timestamp(line, None) is not None
    return not is_complete and parse_line_timestamp(line, 2**61) is not None


def last_timestamp(
    text: bytes, before: int | None, most_lines: int = 200, *, zone: dt.tzinfo = dt.UTC
) -> int | None:
    """Return the time of the last line that has one, searching only the last `most_lines` lines."""
    end = len(text)
    for _ in range(most_lines):
        start = text.rfind(b"\n", 0, max(end - 1, 0)) + 1
        time = parse_line_timestamp(text[start:end], before, zone=zone)
        if time is not None:
            return time
        if start == 0:
            return None
        end = start
    return None


def _without_year(groups: _Groups, before: int, zone: dt.tzinfo) -> int | None:
    """Return the latest matching time that is at most one day after `before`."""
    month, day = _month(groups), int(groups["day"] or b"")
    latest = _date_of(before + DAY).year + (zone is not dt.UTC)
    years = range(latest, latest - _LEAP_YEARS, -1)
    moments = (_moment(year, month, day, _clock(groups), zone) for year in years)
    return next((each for each in moments if each is not None and each <= before + DAY), None)


def _without_date(groups: _Groups, before: int, zone: dt.tzinfo) -> int | None:
    """Return the latest matching time up to `before`."""
    dates = (_date_of(before) + dt.timedelta(days=days) for days in (1, 0, -1))
    moments = (_moment(date.year, date.month, date.day, _clock(groups), zone) for date in dates)
    latest = before + _CLOCK_TOLERANCE
    return next((each for each in moments if each is not None and each <= latest), None)


def _date_of(time: int) -> dt.date:
    return (_EPOCH + dt.timedelta(microseconds=time // 1_000)).date()


def _month(groups: _Groups) -> int:
    """Return the number of a month; 0 for an unknown name."""
    name = groups.get("month_name")
    if name is None:
        return int(groups["month"] or b"")
    text = name.decode("ascii")
    return month_number(text) or month_number(text[:3]) or 0


def _clock(groups: _Groups) -> list[bytes | None]:
    return [groups.get(name) for name in _CLOCK_GROUPS]


def _moment(
    year: int, month: int, day: int, clock: Sequence[bytes | None], zone: dt.tzinfo
) -> int | None:
    """Return a time in nanoseconds since 1970 UTC; None if there is no such day or clock."""
    text, fraction, micros, half, zone_name = clock
    hour, minute, second = _numbers_of_clock(text or b"")
    if half:
        hour = hour % 12 + (12 if half in b"Pp" else 0)
    start = _seconds_of_minute(year, month, day, hour, minute, dt.UTC if zone_name else zone)
    if start is None:
        return None
    seconds = start + min(second, 59)
    if zone_name:
        seconds -= 60 * _minutes_ahead(zone_name)
    nanoseconds = int((fraction + (micros or b""))[:9].ljust(9, b"0")) if fraction else 0
    return seconds * SECOND + nanoseconds if 0 <= seconds < 2**33 else None


@lru_cache(maxsize=1024)  # lines of a log share their minute
def _seconds_of_minute(
    year: int, month: int, day: int, hour: int, minute: int, zone: dt.tzinfo
) -> int | None:
    """Return the seconds from 1970 UTC to a minute, or None if there is no such time."""
    try:
        moment = dt.datetime(year, month, day, hour, minute, tzinfo=zone)
        return (moment - _EPOCH) // dt.timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None


def _numbers_of_clock(text: bytes) -> tuple[int, int, int]:
    """Return hour, minute and second of 12:15:00, 2:15:00, 12-15-00 or 121500."""
    gap = 0 if len(text) == 6 else 1
    return int(text[: -4 - 2 * gap]), int(text[-4 - gap : -2 - gap]), int(text[-2:])


def _minutes_ahead(zone: bytes) -> int:
    """Return the minutes by which a zone is ahead of UTC."""
    text = zone.removeprefix(b"UTC").removeprefix(b"GMT").replace(b":", b"")
    if text in (b"", b"Z"):
        return 0
    minutes = int(text[1:3]) * 60 + int(text[3:] or b"0")
    return -minutes if text[:1] == b"-" else minutes


def _since_epoch(groups: _Groups, before: int | None) -> int | None:
    """Return a time that is written as a number since 1970."""
    integer, fraction = groups["integer"] or b"", groups["fraction"]
    digits = (integer + (fraction or b"")).ljust(19, b"0")[:19]
    time = int(digits)
    if len(integer) == 10 and fraction is None and groups["key"] is None:
        return time if before is not None and before - _MAX_AGE <= time <= before + DAY else None
    return time
