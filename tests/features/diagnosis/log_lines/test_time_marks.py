"""Times read at the speed of memory are those that the parser of single lines reads."""

from __future__ import annotations

import datetime as dt
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines import time_marks
from forewarn.features.diagnosis.log_lines.time_marks import TimeMarks

ZONES = (dt.UTC, dt.timezone(dt.timedelta(hours=8)), dt.timezone(-dt.timedelta(minutes=90)))
STATEMENTS = (
    "[{:%Y-%m-%d %H:%M:%S}] iteration {:6d} | loss {:.2f}",
    "{:%Y-%m-%dT%H:%M:%S}.{:06d} INFO step",
    "{:%Y-%m-%d %H:%M:%S},{:d} - a",
    "{:%Y-%m-%dT%H:%M:%S}Z {:d}",
    "{:%Y-%m-%d %H:%M:%S} AM {:d}",
    "{:%Y-%m-%d %H:%M:%S}",
    "{:%b %d %H:%M:%S} node kernel: {:d}",
    "9999-99-99 99:99:{:%S} no time",
    "2023-02-31 10:00:{:%S} no day",
    '{{"time": "{:%Y-%m-%d %H:%M:%S}", "step": {:d}}}',
    "no time at all {:%S}",
    "",
)
# A statement, seconds between two lines, and how often it is printed.
BLOCKS = st.lists(
    st.tuples(st.sampled_from(STATEMENTS), st.integers(-20, 400), st.integers(1, 200)), max_size=6
)


def text_of(blocks: list[tuple[str, int, int]]) -> bytes:
    moment, lines = dt.datetime(2024, 2, 28, 23, 0), []
    for statement, seconds, count in blocks:
        for number in range(count):
            moment += dt.timedelta(seconds=seconds)
            lines.append(statement.format(moment, number, number / 7))
    return "\n".join(lines).encode()


@given(BLOCKS, st.sampled_from(ZONES), st.booleans())
def test_fast_times_are_those_of_single_lines(
    blocks: list[tuple[str, int, int]], zone: dt.tzinfo, is_open: bool
) -> None:
    texts = [text_of(blocks) + b"\n" * (not is_open), text_of(blocks[::-1])]
    fast, slow = (TimeMarks(10**18 * 2, zone) for _ in range(2))
    for text in texts:
        fast.read(text)
        with mock.patch.object(time_marks, "iso_layout", return_value=None):
            slow.read(text)
    assert (fast.marks, fast.last) == (slow.marks, slow.last)
