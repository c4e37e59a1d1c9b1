from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.log_timestamp import (
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
        (b"2025-03-01 12:00:00.123 | INFO     | train:main:9 - step", 123_000_000),
        (b"2025-03-01 20:00:00.5 +08:00 step", 500_000_000),
        (b"2025-03-01 12:00:00.250+00 step", 250_000_000),
        (b"2025-03-01 20:00:00 UTC+08:00 step", 0),
        (b"2025-03-01 12:00:00 +0000 GMT step", 0),
        (b"2025-03-01T12:00:00.123456789Z step", 123_456_789),
        (b"2025-03-01, 12:00:00 step", 0),
        (b"2025.03.01 12:00:00 step", 0),
        (b"2025-03-01_12-00-00 step", 0),
        (b"20250301T120000Z step", 0),
        (b"[20250301-12:00:00] step", 0),
        (b"20250301 12:00:00.5 step", 500_000_000),
        (b"20250301_120000 step", 0),
        (b"[03/01/2025-12:00:00] [TRT-LLM] [I] step", 0),
        (b"03/01/2025 12:00:00 PM step", 0),
        (b"3/1/2025, 12:00:00 step", 0),
        (b"10.0.0.4 - - [01/Mar/2025:20:00:00 +0800] GET", 0),
        (b"01-Mar-2025 12:00:00.250 INFO step", 250_000_000),
        (b"Sat Mar  1 12:00:00 2025 step", 0),
        (b"Sat Mar  1 12:00:00 CST 2025 step", 0),
        (b"Sat 01 Mar 2025 12:00:00 PM UTC", 0),
        (b"[Sat Mar 01 12:00:00.250000 2025] [core] step", 250_000_000),
        (b"Mar 1, 2025 12:00:00 step", 0),
        (b"March 1, 2025 at 12:00:00 PM step", 0),
        (b"MAR  1 12:00:00 node-1 python[77]: step", 0),
        (b"<14>Mar  1 12:00:00 node-1 python: step", 0),
        (b"I20250301 12:00:00.123456 77 train.cc:9] step", 123_456_000),
        (b"I0301 12:00:00.123456       7 train.go:9] step", 123_456_000),
        (b"[rank3]:[W301 12:00:00.5 Socket.cpp:9] x", 500_000_000),
        (b"[03/01/25 12:00:00] INFO     step", 0),
        (b"25/03/01 12:00:00 INFO Executor: step", 0),
        (b"03/01 12:00:00 - mmengine - INFO - step", 0),
        (b"[03/01 12:00:00 d2.utils.events]: step", 0),
        (b"INFO 03-01 12:00:00 [worker.py:9] step", 0),
        (b"(Worker pid=77) INFO 03-01 12:00:00 [worker.py:9] step", 0),
        (b"12:00:00,123 INFO step", 123_000_000),
        (b"[12:00:00] step", 0),
        (b"12:00:00 [INFO] step", 0),
        (b"[2025-03-01 12:00:00] node-1:77:99 [0] NCCL INFO x", 0),
        (b"[ERROR] HCCL(77,python):2025-03-01-12:00:00.123.456 [a.cc:9] x", 123_456_000),
        (b"1740830400 step", 0),
        (b"[1740830400.2] step", 200_000_000),
        (b"1740830400123 step", 123_000_000),
        (b"1740830400123456 step", 123_456_000),
        (b"1740830400123456789 step", 123_456_789),
        (b'{"ts": 1740830400.25, "msg": "step"}', 250_000_000),
        (b'{"level":"info","timestamp":1740830400123}', 123_000_000),
        (b'{"msg": "' + b"x" * 400 + b'", "time":"2025-03-01T12:00:00.5Z"}', 500_000_000),
        (b'{"asctime": "2025-03-01 12:00:00,500", "message": "step"}', 500_000_000),
        (b'{"msg": "since 2024-01-01 00:00:00", "@timestamp": "2025-03-01T12:00:00Z"}', 0),
        (b"ts=1740830400.25 level=info msg=step", 250_000_000),
        (b'time="2025-03-01T12:00:00Z" level=info', 0),
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
        b"1048576000 tokens",
        b"740830400123 tokens",
        b"12:00:00 remaining",
        b"00:10:00<00:20:00, 3.1it/s",
        b"step 7 2025 12:00:00",
        b"saved to /data/20250301-120000/out",
        b"32/13/2025 12:00:00 step",
        b"node-1:77:99 [0] NCCL INFO comm 0x7f2b12345678",
        b'{"step": 7, "time": 12.5}',
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


@pytest.mark.parametrize("line", [b"1740830400 step", b"12:00:00,5 step", b"[12:00:00] step"])
def test_incomplete_times_require_reference_time(line: bytes) -> None:
    assert parse_line_timestamp(line, None) is None
    assert parse_line_timestamp(line, BEFORE) is not None


def test_key_makes_number_a_time() -> None:
    assert parse_line_timestamp(b'{"ts": 1740830400}', None) == nanoseconds(NOON)


def test_missing_date_is_latest_past_day() -> None:
    before = nanoseconds(NOON)
    assert parse_line_timestamp(b"[12:04:00] x", before) == before + 240 * SECOND
    assert parse_line_timestamp(b"[12:06:00] x", before) == before + (360 - 86_400) * SECOND
    assert lacks_year(b"[12:06:00] x")


FORMATS = [
    "%Y-%m-%d %H:%M:%S step",
    "[%Y-%m-%dT%H:%M:%S] step",
    "%Y/%m/%d %H:%M:%S - step",
    "%Y%m%dT%H%M%S step",
    "%Y-%m-%d_%H-%M-%S step",
    "[%m/%d/%Y-%H:%M:%S] step",
    "%m/%d/%Y %I:%M:%S %p step",
    "[%d/%b/%Y:%H:%M:%S] step",
    "%a %b %d %H:%M:%S %Y step",
    "%a %d %b %Y %I:%M:%S %p step",
    "%B %d, %Y %H:%M:%S step",
    "%b %d %H:%M:%S node-1 python: step",
    "I%m%d %H:%M:%S.000000 7 a.cc:9] step",
    "I%Y%m%d %H:%M:%S.000000 7 a.cc:9] step",
    "[%m/%d/%y %H:%M:%S] step",
    "%y/%m/%d %H:%M:%S INFO step",
    "%m/%d %H:%M:%S - mmengine - step",
    "INFO %m-%d %H:%M:%S [a.py:9] step",
    "[%H:%M:%S] step",
    "%H:%M:%S,000 INFO step",
    '{"msg": "step", "time": "%Y-%m-%d %H:%M:%S"}',
]
ZONES = ["UTC", "Asia/Shanghai", "Asia/Kolkata", "America/Los_Angeles", "Europe/Berlin"]


@pytest.mark.parametrize("form", FORMATS)
@given(
    seconds=st.integers(int(dt.datetime(2020, 1, 2, tzinfo=dt.UTC).timestamp()), 1_900_000_000),
    zone=st.sampled_from(ZONES).map(ZoneInfo),
    later=st.integers(0, 3_600),
)
@settings(max_examples=30)
def test_local_times_are_read_in_their_zone(
    form: str, seconds: int, zone: ZoneInfo, later: int
) -> None:
    moment = dt.datetime.fromtimestamp(seconds, zone)
    first = moment.replace(fold=0)  # of an hour that occurs twice
    line = moment.strftime(form).encode()
    before = (int(first.timestamp()) + later) * SECOND
    assert parse_line_timestamp(line, before, zone=zone) == nanoseconds(first)
    assert last_timestamp(line + b"\nno time\n", before, zone=zone) == nanoseconds(first)


@given(st.sampled_from(ZONES).map(ZoneInfo), st.integers(-14 * 4, 14 * 4))
def test_stated_offset_outranks_zone(zone: ZoneInfo, quarters: int) -> None:
    sign, minutes = "-" if quarters < 0 else "+", 15 * abs(quarters)
    local = NOON + dt.timedelta(minutes=15 * quarters)
    line = f"{local:%Y-%m-%d %H:%M:%S} {sign}{minutes // 60:02d}{minutes % 60:02d} step".encode()
    assert parse_line_timestamp(line, None, zone=zone) == nanoseconds(NOON)
    assert parse_line_timestamp(b"2025-03-01T12:00:00Z x", None, zone=zone) == nanoseconds(NOON)


def test_daylight_saving_changes_the_offset() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    winter = parse_line_timestamp(b"2025-03-30 01:59:59 x", None, zone=berlin)
    summer = parse_line_timestamp(b"2025-03-30 03:00:00 x", None, zone=berlin)
    assert winter is not None
    assert summer == winter + SECOND
