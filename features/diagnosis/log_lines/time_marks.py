"""Times at which a log was written, about 10 s apart."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from forewarn.features.array_types import Int64Array
from forewarn.features.diagnosis.log_lines.iso_times import (
    MARK_INTERVAL,
    SPARSE_INTERVAL,
    STRIDE_BYTES,
    IsoLayout,
    iso_layout,
    read_blocks,
    times_of_lines,
)
from forewarn.features.diagnosis.log_lines.log_timestamp import (
    last_timestamp,
    parse_line_timestamp,
)

__all__ = ["TimeMarks"]

_NEWLINE = ord("\n")
_MARKS: Int64Array = np.empty(4096, np.int64)


@dataclass(slots=True)
class TimeMarks:
    """Times of a log's lines.

    Parameters
    ----------
    before : int or None
        Determines the year of timestamps without one, as in `parse_line_timestamp`.
    zone : datetime.tzinfo
        Zone of timestamps that state none.

    Attributes
    ----------
    marks : list of int
        Increasing line times, about 10 s apart, in nanoseconds since 1970 UTC.
    last : int or None
        Latest time in the log.
    """

    before: int | None
    zone: dt.tzinfo
    marks: list[int] = field(default_factory=list)
    last: int | None = None

    def read(self, text: bytes) -> None:
        """Read one timestamp per 4 KiB, and every line where timestamps are far apart."""
        position, before = 0, self.last
        while position < len(text):
            end = text.find(b"\n", min(position + STRIDE_BYTES, len(text)))
            block = text[position : len(text) if end < 0 else end + 1]
            line = block[block.rfind(b"\n", 0, -1) + 1 :].removesuffix(b"\n")
            layout = iso_layout(line, self.zone)
            start = position
            if layout is not None:
                position, before = self._read_alike(text, position, before, layout)
            if position == start:
                before = self._read_block(block, before)
                position += len(block)

    def times(self, text: bytes, starts: Sequence[int]) -> list[int | None]:
        """Return the time of each line that starts somewhere in a text."""
        if not starts:
            return []
        places = np.array(starts)
        times = np.full(len(places), -1)
        layout = iso_layout(_line_at(text, starts[len(starts) // 2]), self.zone)
        if layout is not None:
            times_of_lines(np.frombuffer(text, np.uint8), places, layout, times)
        return [
            time
            if time >= 0
            else parse_line_timestamp(_line_at(text, start), self.before, zone=self.zone)
            for start, time in zip(starts, times.tolist(), strict=True)
        ]

    def last_before(self, at: int) -> int | None:
        """Return the last time at or before `at`, to within 10 s, or None."""
        if self.last is not None and self.last <= at:
            return self.last
        number = bisect_right(self.marks, at)
        return self.marks[number - 1] if number else None

    def _read_alike(
        self, text: bytes, position: int, before: int | None, layout: IsoLayout
    ) -> tuple[int, int | None]:
        """Read lines of one layout; return where they end, and their last time."""
        times = (before, self.marks[-1] if self.marks else None, self.last)
        state = np.array([position, 0, *(-1 if time is None else time for time in times)])
        read_blocks(np.frombuffer(text, np.uint8), layout, _MARKS, state)
        position, count, time, _, last = state.tolist()
        self.marks += _MARKS[:count].tolist()
        self.last = None if last < 0 else last
        return position, None if time < 0 else time

    def _read_block(self, block: bytes, before: int | None) -> int | None:
        time = last_timestamp(block, self.before, zone=self.zone)
        if time is None:
            return before
        if before is None or time - before > SPARSE_INTERVAL:
            newlines = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE)
            for each in self.times(block, [0, *(newlines + 1).tolist()]):
                self._mark(each)
        self._mark(time)
        return time

    def _mark(self, time: int | None) -> None:
        if time is None:
            return
        if not self.marks or time >= self.marks[-1] + MARK_INTERVAL:
            self.marks.append(time)
        self.last = time if self.last is None else max(self.last, time)


def _line_at(text: bytes, start: int) -> bytes:
    end = text.find(b"\n", start)
    return text[start : len(text) if end < 0 else end]
