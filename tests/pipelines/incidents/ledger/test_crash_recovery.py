"""Crash test of the ledger: a responder killed between any two steps, and run again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

RESPONDER = Path(__file__).with_name("small_responder.py")
# A step is the start or end of a statement or transaction; there are some 320. A stride of 1 tests
# all of them.
STRIDE = {"sqlite": "29", "postgresql": "53"}
STATES = ["intended", "sent", "holding", "drained", "releasing", "released"]


@pytest.fixture
def crashes(url: str) -> list[dict[str, Any]]:
    """Return the ledger's content after each crash and rerun; the last entry has no crash."""
    stride = STRIDE[url.split(":")[0]]
    command = [sys.executable, str(RESPONDER), "kill", url, stride]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_crashes_lose_and_double_nothing(
    crashes: list[dict[str, Any]],
) -> None:
    *killed, complete = crashes
    assert len(killed) > 5
    assert [crash["killed"] for crash in crashes] == [True] * len(killed) + [False]
    assert complete["machines"] == ["m1", "m2"]
    assert complete["states"] == {"closed": 2}
    assert complete["states_of_actions"] == [STATES, STATES]
    for crash in killed:
        assert {**crash, "counts": None, "step": None, "killed": None} == {
            **complete,
            "counts": None,
            "step": None,
            "killed": None,
        }
        # The second run repeats both findings; the first recorded both or none.
        assert crash["counts"] in ([1, 1], [2, 2])
    assert {tuple(crash["counts"]) for crash in killed} == {(1, 1), (2, 2)}
