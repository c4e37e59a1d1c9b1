from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.error_report import parse_dlrover_errors, parse_error
from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_pattern import LogPattern
from forewarn.features.diagnosis.log_lines.log_scan import LogScan
from forewarn.features.diagnosis.log_lines.progress_lines import learn_progress
from forewarn.features.diagnosis.log_lines.python_exceptions import traceback_ends
from forewarn.features.time_units import SECOND

EPOCH = dt.datetime(2025, 3, 1, tzinfo=dt.UTC)
T0 = int(EPOCH.timestamp()) * SECOND
S = 10**9


def pattern(name: str, expression: str, *, attempt: bool = False) -> LogPattern:
    return LogPattern(name, expression, "root", "node", "error", "says", "next", attempt)


MATCHER = LogMatcher([pattern("full", "No space"), pattern("again", "will restart", attempt=True)])


def line(seconds: float, text: str) -> bytes:
    moment = EPOCH + dt.timedelta(seconds=seconds)
    return f"[{moment:%Y-%m-%d %H:%M:%S}] {text}\n".encode()


def scanned(*parts: bytes) -> LogScan:
    scan = LogScan(MATCHER, progress=learn_progress(b"".join(parts)))
    for part in parts:
        scan.feed(part)
    return scan


def test_undated_line_inherits_previous_time() -> None:
    scan = scanned(line(0, "step 1"), line(5, "step 2") + b"OSError: No space left\n")
    (hit,) = scan.hits
    assert (hit.time, hit.line) == (T0 + 5 * S, "OSError: No space left")
    assert hit.offset == len(line(0, "step 1") + line(5, "step 2"))
    scan = scanned(line(7, "step 1"), b"OSError: No space left\n")
    assert scan.hits[0].time == T0 + 7 * S


def test_attempt_line_increments_attempt() -> None:
    scan = scanned(line(1, "No space") + line(2, "will restart") + line(3, "No space"))
    assert [(hit.pattern.id, hit.attempt) for hit in scan.hits] == [
        *(("full", 0), ("again", 1), ("full", 1)),
    ]
    assert scan.starts == [T0 + 2 * S]


def test_first_step_per_attempt() -> None:
    text = line(0, "starting") + line(9, "step 0") + line(12, "step 1")
    again = line(20, "will restart") + line(31, "step 2") + line(35, "step 3")
    assert scanned(text, again).first_steps == [(0, T0 + 9 * S), (1, T0 + 31 * S)]
    assert scanned(text + again).first_steps[0] == (0, T0 + 9 * S)


def test_repeated_lines_use_bounded_memory() -> None:
    scan = scanned(*[b"No space left\n" * 1000] * 20)
    assert len(scan.hits) == 20
    scan = scanned(*[b"".join(b"%d errors of kind %d\n" % (n, n) for n in range(900))] * 5)
    assert list(scan.unknown) == ["<n> errors of kind <n>"]
    assert scan.unknown.total() == 2_000


def test_known_errors_are_not_unknown() -> None:
    scan = scanned(b"error: No space left\nfrob failed at 7\n" + b"No space: failed\n" * 50)
    assert dict(scan.unknown) == {"frob failed at <n>": 1}


def test_last_before() -> None:
    fast = b"".join(line(n / 10, f"step {n}") for n in range(20_000))
    scan = scanned(fast[: len(fast) // 2], fast[len(fast) // 2 :])
    assert scan.last == T0 + 1999 * S
    for at in (100, 1000, 1990):
        last = scan.times.last_before(T0 + at * S)
        assert last is not None
        assert at - 30 <= (last - T0) / S <= at
    assert scan.times.last_before(T0 - 1) is None


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=60), st.integers(0, 12_000))
def test_sparse_log_is_accurate_to_ten_seconds(gaps: list[int], at: int) -> None:
    times = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    scan = scanned(b"".join(line(time, f"step {n}") for n, time in enumerate(times)))
    exact = max((time for time in times if time <= at), default=None)
    last = scan.times.last_before(T0 + at * S)
    if exact is None:
        assert last is None
    else:
        assert last is not None
        assert exact - 60 <= (last - T0) / S <= exact


@given(st.lists(st.binary(max_size=80), max_size=8))
def test_arbitrary_bytes_are_scanned(parts: list[bytes]) -> None:
    scan = scanned(*parts)
    assert scan.size == sum(map(len, parts))
    assert scan.last is None or scan.last >= 0


# --- error reports --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "time"),
    [
        ('{"message": "ValueError: x"}', "ValueError: x", None),
        ('{"message": {"message": "x", "extraInfo": {"timestamp": 7}}}', "x", 7 * S),
        ('{"message": {"message": "x", "extraInfo": {"timestamp": "nan"}}}', "x", None),
        ('{"message": {"message": "x", "extraInfo": null}}', "x", None),
    ],
)
def test_error_files(text: str, message: str, time: int | None) -> None:
    error = parse_error(text)
    assert error is not None
    assert (error.message, error.time) == (message, time)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"message": 7}', '{"message": {"message": 7}}', "[" * 100_000]
)
def test_invalid_error_files_are_none(text: str) -> None:
    assert parse_error(text) is None


def test_dlrover_master_line() -> None:
    text = (
        b'[2025-03-01 04:00:00] [INFO] job-worker-116 restart 0 fails: {"784": {"local_rank": 0, '
        b'"exitcode": -6, "message": {"message": "m", "extraInfo": {"py_callstack": "s", '
        b'"timestamp": "12"}}, "datetime": "x"}}'
    )
    ((rank, error),) = parse_dlrover_errors(text)
    assert (rank, error.exit_code, error.message, error.time) == (784, -6, "m", 12 * S)
    assert list(parse_dlrover_errors(b"worker-1 restart 0 fails: {broken}")) == []
    assert list(parse_dlrover_errors(b'worker-1 restart 0 fails: {"x": {}, "7": 3}')) == []


@pytest.mark.parametrize(
    ("line", "is_hit"),
    [
        ("Mar  1 12:00:00 node-1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, x", True),
        ("2025-03-01T12:00:00,500000+00:00 NVRM: Xid (PCI:0000:3b:00): 79, x", True),
        ("NVRM: Xid (PCI:0000:3b:00): 79, x", True),
        ("rank 3: NVRM: Xid (PCI:0000:3b:00): 79, x", True),
        ('Mar  1 12:00:00 node-1 gpud[7]: "NVRM: Xid (PCI:0000:3b:00): 79, x"', False),
        ("2025-03-01T12:00:00+00:00 n1 sudo: root : COMMAND=grep NVRM: Xid (PCI:): 79", False),
        ("user  :info  : [    5.000000] NVRM: Xid (PCI:0000:3b:00): 79, x", False),
    ],
)
def test_quoted_kernel_lines_do_not_count(line: str, is_hit: bool) -> None:
    xid = LogPattern(
        "xid", r"NVRM:.*Xid \(.*\): 79", "root", "gpu", "error", "x", "x", by_kernel=True
    )
    scan = LogScan(LogMatcher([xid]))
    scan.feed(f"{line}\n".encode())
    assert bool(scan.hits) == is_hit
    assert not scan.unknown


def test_banner_after_quoted_trace_is_no_exception() -> None:
    """torchrun quotes the trace of a worker with indentation, and a banner follows."""
    quoted = b"  traceback : Traceback (most recent call last):\n    File x\n    KeyError: 7\n"
    assert list(traceback_ends(quoted + b"=" * 60 + b"\n")) == []
