from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_timestamp import (
    lacks_year,
    last_timestamp,
    parse_line_timestamp,
)
from forewarn.features.time_units import SECOND

NOON = dt.datetime(2025, 3, 1, 12, 0, 0, tzinfo=dt.UTC)
BEFORE = int(dt.datetime(2025, 3, 2, tzinfo=dt.UTC).timestamp()) * SECOND


def nanoseconds(moment: dt.datetime, fraction: int = 0) -> int:
    return int(moment.timestamp()) * SECOND + fraction


@pytest.mark.parametrize(
    ("line", "fraction"),
    [
        (b"[2025-03-01 12:00:00,123] [INFO] [train.py:120] step 1", 123_000_000),
        (b"2025-03-01T12:00:00.5Z step", 500_000_000),
        (b"2025-03-01T13:00:00+01:00 step", 0),
        (b"2025-03-01 06:30:00-0530 step", 0),
        (b"2025/03/01 12:00:00 step", 0),
        (b"03/01/2025 12:00:00 - INFO - step", 0),
        (b"[NeMo I 2025-03-01 12:00:00 trainer:7] step", 0),
        (b"[rank3]:[E301 12:00:00.123456789 ProcessGroupNCCL.cpp:632] x", 123_456_789),
        (b"W0301 12:00:00.500000 77 torch/distributed/run.py:793] x", 500_000_000),
        (b"1740830400.250 step", 250_000_000),
        (b"Mar  1 12:00:00 node-1 kernel: NVRM: x", 0),
        (b"kern  :warn  : 2025-03-01T12:00:00,500000+00:00 NVRM: x", 500_000_000),
        (b"[Sat Mar  1 12:00:00 2025] NVRM: x", 0),
    ],
)
def test_common_timestamp_formats(line: bytes, fraction: int) -> None:
    assert parse_line_timestamp(line, BEFORE) == nanoseconds(NOON, fraction)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"step 2025 of 10000",
        b"loss 12:00:00",
        b"[2025-13-01 12:00:00] step",
        b"[2025-02-30 12:00:00] step",
        b"x" * 200 + b"2025-03-01 12:00:00",
        b"[1740830400.2] step",
        b"\xff\xfe\x00",
    ],
)
def test_lines_without_timestamp(line: bytes) -> None:
    assert parse_line_timestamp(line, BEFORE) is None


def test_missing_year_requires_reference_time() -> None:
    line = b"[rank3]:[E301 12:00:00.1 a.cpp:1] x"
    assert parse_line_timestamp(line, None) is None
    assert lacks_year(line)
    assert not lacks_year(b"[2025-03-01 12:00:00] x")


def test_missing_year_is_latest_past_year() -> None:
    new_year = int(dt.datetime(2025, 1, 1, 0, 10, tzinfo=dt.UTC).timestamp()) * SECOND
    line = b"E1231 23:59:59.0 1 a] x"
    expected = dt.datetime(2024, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    assert parse_line_timestamp(line, new_year) == nanoseconds(expected)


def test_last_timestamp_of_text() -> None:
    text = b"[2025-03-01 12:00:00] a\n[2025-03-01 12:00:01] b\n  File x\n  raise\n"
    assert last_timestamp(text, None) == nanoseconds(NOON) + 10**9
    assert last_timestamp(b"no\ntimes", None) is None
    assert last_timestamp(b"", None) is None


@given(st.binary(max_size=200), st.none() | st.integers(0, 2**62))
def test_arbitrary_bytes_do_not_raise(line: bytes, before: int | None) -> None:
    time = parse_line_timestamp(line, before)
    assert time is None or 0 <= time < 2**63
