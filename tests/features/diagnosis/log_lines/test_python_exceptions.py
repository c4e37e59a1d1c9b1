"""Ends of stack traces, and errors of which the writer is only a witness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.python_exceptions import names_others, traceback_ends

NAMES = st.sampled_from(["RuntimeError", "sync.GateError", "WorkError", "CommFailure"])
OTHERS = st.sampled_from(["rank 6", "ranks 2, 7", "peer 10.1.2.3", "all processes", "a replica"])
WITNESS = [
    *("timed out waiting for {}", "{} did not reach the gate", "{}: no response for 40 s"),
    *(
        "time-out after 90 s, {} never arrived",
        "lost connection to {}",
        "{} failed to pass the gate",
    ),
]
OWN = [
    *("DataLoader timed out after 60 s", "shape of rank 3 is [2, 4]", "cannot read /data/peer.bin"),
    *("CUDA out of memory on rank 5", "lookup of key 'rank' failed", "worker process 71 exited"),
    "Pool(host='x', port=1): Read timed out.",
]


@given(NAMES, OTHERS, st.sampled_from(WITNESS))
def test_missing_others_make_a_witness(name: str, others: str, form: str) -> None:
    assert names_others(f"{name}: {form.format(others)}")


@pytest.mark.parametrize("text", OWN)
def test_own_errors_make_no_witness(text: str) -> None:
    assert not names_others(f"RuntimeError: {text}")


def test_traces_of_two_writers_end_once() -> None:
    head = b"Traceback (most recent call last):\n"
    text = head + b"  File a\n" + head + b"  File b\nGateError: closed\n"
    assert [line for _, line in traceback_ends(text)] == [b"GateError: closed"]
