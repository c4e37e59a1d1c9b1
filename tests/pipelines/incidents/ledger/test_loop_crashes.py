"""Crash test of the loop: its command is killed between any two steps, and run again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipelines.incidents.crash_test_loop import crash_results

pytestmark = pytest.mark.long

# A step is before or after a commit or a scheduler change; there are some 700. A stride of 1 tests
# all of them.
STRIDE = {"sqlite": "237", "postgresql": "401"}
STATES = ["intended", "sent", "holding", "drained", "releasing", "released"]


def test_crashes_drain_and_release_each_machine_once(tmp_path: Path, url: str) -> None:
    *killed, complete = crash_results(tmp_path, url, STRIDE[url.split(":")[0]])
    assert len(killed) > 1
    assert complete["states"] == {
        "node-00001 restart": STATES,
        "node-00002 drain": [state for state in STATES if state != "holding"],
    }
    once = ["restart node-00001", "undo node-00001", "drain node-00002", "undo node-00002"]
    for crash in [*killed, complete]:
        assert crash["consistent"], crash
        assert (crash["states"], crash["n_actions"]) == (complete["states"], 2)
        assert [change for change in crash["calls"] if change in once] == once
        assert crash["calls"].count("notify 17") <= 1  # a crash in between may lose the notice
        assert crash["out"] == []
    assert complete["calls"].count("notify 17") == 1
