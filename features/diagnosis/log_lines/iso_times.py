"""Times of lines that differ only in digits from a line whose ISO 8601 time is known."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import Int64Array, UInt8Array
from forewarn.features.compiled import compiled
from forewarn.features.diagnosis.log_lines.any_digits import zero_digits
from forewarn.features.diagnosis.log_lines.log_time_forms import HEAD_BYTES, ISO
from forewarn.features.time_units import MINUTE, SECOND

__all__ = [
    "MARK_INTERVAL",
    "SPARSE_INTERVAL",
    "STRIDE_BYTES",
    "IsoLayout",
    "iso_layout",
    "read_blocks",
    "times_of_lines",
]

STRIDE_BYTES = 4096
_AFTER = 12  # bytes after a time in which a fraction, a zone or AM could begin
_WIDTH = len("2026-03-04 12:15:00")
MARK_INTERVAL = 10 * SECOND
SPARSE_INTERVAL = MINUTE
_NO_TIME = -1
_MAX_SECONDS = 2**33
_DAYS_BEFORE = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)  # each month
_LEAP_DAYS_BEFORE_1970 = 477
_NEWLINE, _ZERO, _NINE = 10, 48, 57


class IsoLayout(NamedTuple):
    """Where lines have their time that agree, up to digits, from their start to beyond the time.

    Attributes
    ----------
    head : array of uint8
        Start of the lines, with zeros for digits.
    column : int
        Of the year.
    digits : int
        Of the fraction of a second.
    lead : int
        Seconds by which the clock is ahead of UTC.
    """

    head: UInt8Array
    column: int
    digits: int
    lead: int

    def time(self, line: bytes) -> int | None:
        """Return the time of a line that has this layout; None if there is no such day or clock."""
        year_at = self.column
        seconds = _seconds_of_minute(line[year_at : year_at + _WIDTH - 3])
        if seconds is None:
            return None
        seconds += min(int(line[year_at + _WIDTH - 2 : year_at + _WIDTH]), 59) - self.lead
        if not 0 <= seconds < _MAX_SECONDS:
            return None
        fraction = line[year_at + _WIDTH + 1 : year_at + _WIDTH + 1 + self.digits]
        return seconds * SECOND + (int(fraction.ljust(9, b"0")) if fraction else 0)


@lru_cache(maxsize=1024)  # lines of a log share their minute
def _seconds_of_minute(text: bytes) -> int | None:
    seconds = int(_seconds(np.frombuffer(text + b":00", np.uint8), 0))
    return None if seconds == _NO_TIME else seconds


def iso_layout(line: bytes, zone: dt.tzinfo) -> IsoLayout | None:
    """Return the layout of a line whose time is `YYYY-MM-DD hh:mm:ss`, or None.

    Parameters
    ----------
    line : bytes
        Without its newline.
    zone : datetime.tzinfo
        Zone of times that state none; only a fixed one has a layout.
    """
    lead = zone.utcoffset(None)
    if lead is None or line[:1] == b"{":  # an object's time may be anywhere
        return None
    return _layout(zero_digits(line[:HEAD_BYTES]), lead // dt.timedelta(seconds=1))


@lru_cache(maxsize=1024)
def _layout(head: bytes, lead: int) -> IsoLayout | None:
    match = ISO.search(head)
    if match is None or match["zone"] or match["half"] or match["micros"]:
        return None
    fraction = match["fraction"] or b""
    if match.end() - match.start() != _WIDTH + len(fraction) + bool(fraction):
        return None
    known = (head + b"\n")[: match.end() + _AFTER]
    return IsoLayout(np.frombuffer(known, np.uint8), match.start(), len(fraction), lead)


@compiled
def times_of_lines(
    letters: UInt8Array, starts: Int64Array, layout: IsoLayout, times: Int64Array
) -> None:
    """Fill in the times of lines in nanoseconds since 1970 UTC; -1 if a layout is another one."""
    for n in range(starts.size):
        times[n] = _iso_time(letters, starts[n], layout)


@compiled
def read_blocks(
    letters: UInt8Array,
    layout: IsoLayout,
    marks: Int64Array,
    state: Int64Array,
) -> None:
    """Read the last time of each 4 KiB, and that of every line where times are far apart.

    It ends at the end of the text, at a block that has lines of another layout where a time is
    needed, and when there is no room for marks.

    Parameters
    ----------
    letters : array of uint8
    layout : IsoLayout
    marks : array of int64
        Filled with times that are each 10 s or more after the one before.
    state : array of int64
        Position; number of marks; time of the block before, the last mark and the latest time,
        each -1 if there is none.
    """
    while state[0] < letters.size:
        start = state[0]
        end = _end_of_block(letters, start)
        last = end - 1 if letters[end - 1] == _NEWLINE else end  # without the newline
        line = last
        while line > start and letters[line - 1] != _NEWLINE:
            line -= 1
        time = _iso_time(letters, line, layout)
        if time == _NO_TIME:
            return
        if state[2] == _NO_TIME or time - state[2] > SPARSE_INTERVAL:
            if not _mark_lines(letters, start, last, layout, marks, state):
                return
        elif state[1] == marks.size:
            return
        else:
            _mark(time, marks, state)
        state[0], state[2] = end, time


@compiled
def _end_of_block(letters: UInt8Array, start: int) -> int:
    end = start + STRIDE_BYTES
    while end < letters.size and letters[end] != _NEWLINE:
        end += 1
    return min(end + 1, letters.size)


@compiled
def _mark_lines(
    letters: UInt8Array,
    start: int,
    end: int,
    layout: IsoLayout,
    marks: Int64Array,
    state: Int64Array,
) -> bool:
    """Mark every line, or return False and mark none if a line has another layout."""
    number = 0
    line = start
    while line < end:
        if _iso_time(letters, line, layout) == _NO_TIME:
            return False
        number += 1
        while line < end and letters[line] != _NEWLINE:
            line += 1
        line += 1
    if state[1] + number > marks.size:
        return False
    line = start
    while line < end:
        _mark(_iso_time(letters, line, layout), marks, state)
        while line < end and letters[line] != _NEWLINE:
            line += 1
        line += 1
    return True


@compiled
def _mark(time: int, marks: Int64Array, state: Int64Array) -> None:
    if state[3] == _NO_TIME or time >= state[3] + MARK_INTERVAL:
        marks[state[1]] = time
        state[1] += 1
        state[3] = time
    state[4] = max(state[4], time)


@compiled
def _iso_time(letters: UInt8Array, start: int, layout: IsoLayout) -> int:
    """Return the time of a line in nanoseconds since 1970 UTC; -1 if its layout is another one."""
    head = layout.head
    if start + head.size > letters.size:
        return _NO_TIME
    for n in range(head.size):
        letter = letters[start + n]
        if letter != head[n] and (head[n] != _ZERO or letter < _ZERO or letter > _NINE):
            return _NO_TIME
    year_at = start + layout.column
    seconds = _seconds(letters, year_at)
    if seconds < 0:
        return _NO_TIME
    seconds -= layout.lead
    if not 0 <= seconds < _MAX_SECONDS:
        return _NO_TIME
    fraction = _number(letters, year_at + _WIDTH + 1, layout.digits)
    for _ in range(9 - layout.digits):
        fraction *= 10
    return seconds * SECOND + fraction


@compiled
def _seconds(letters: UInt8Array, year_at: int) -> int:
    """Return the seconds from 1970 to a time, or -1 if there is no such day or clock."""
    year, month = _number(letters, year_at, 4), _number(letters, year_at + 5, 2)
    day, hour = _number(letters, year_at + 8, 2), _number(letters, year_at + 11, 2)
    minute, second = _number(letters, year_at + 14, 2), _number(letters, year_at + 17, 2)
    if year < 1970 or not 1 <= month <= 12 or day < 1 or hour > 23 or minute > 59:
        return _NO_TIME
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    leap_day = 1 if is_leap else 0
    before = _DAYS_BEFORE[month - 1] + (leap_day if month > 2 else 0)
    length = _DAYS_BEFORE[month] - _DAYS_BEFORE[month - 1] + (leap_day if month == 2 else 0)
    if day > length:
        return _NO_TIME
    past = year - 1
    days = 365 * (year - 1970) + past // 4 - past // 100 + past // 400 - _LEAP_DAYS_BEFORE_1970
    return ((days + before + day - 1) * 24 + hour) * 3_600 + minute * 60 + min(second, 59)


@compiled
def _number(letters: UInt8Array, start: int, digits: int) -> int:
    number = 0
    for n in range(start, start + digits):
        number = 10 * number + int(letters[n]) - _ZERO
    return number
