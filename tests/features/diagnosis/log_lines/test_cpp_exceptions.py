from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_scan import UNKNOWN_EXCEPTION, LogScan
from forewarn.features.diagnosis.log_lines.python_exceptions import cpp_exceptions


@given(st.integers(0, 4000), st.sampled_from(["bad frame 7", "device is gone", "map::at"]))
def test_end_of_a_program_is_an_exception(rank: int, says: str) -> None:
    """No pattern is necessary: std::terminate prints it only where the process ends."""
    line = f"  what():  [Rank {rank}] {says}"
    text = f"a\nterminate called after throwing an instance of 'E'\n{line}\nb\n".encode()
    scan = LogScan(LogMatcher([]))
    scan.feed(text, is_last=True)
    scan.add_exceptions(text)
    assert [(hit.pattern, hit.line) for hit in scan.hits] == [(UNKNOWN_EXCEPTION, line.strip())]


@pytest.mark.parametrize(
    "says",
    [
        "the collective ran into its timeout",
        "Timed out after 600 s",
        "Connection closed by 10.0.0.4",
        "the communicator was aborted by another rank",
        "a remote process exited",
        "ranks 3, 4 did not enter the barrier",
    ],
)
def test_end_of_a_wait_is_no_cause(says: str) -> None:
    assert list(cpp_exceptions(f"  what():  [Rank 2] {says}\n".encode())) == []
