"""Crash test of a step: its command never runs twice, and a lost result goes to a person."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipelines.incidents.crash_test_steps import crash_results

pytestmark = pytest.mark.long

STRIDE = {"sqlite": "13", "postgresql": "29"}  # 1 tests each moment


def test_no_crash_repeats_a_command(tmp_path: Path, url: str) -> None:
    crashes = crash_results(tmp_path, url, STRIDE[url.split(":")[0]])
    assert len(crashes) > 2
    for crash in crashes:
        assert crash["runs"] in ([], ["node-00001"]), crash
        assert crash["consistent"], crash
        results = [d for d in crash["details"] if d.startswith(("restart succ", "restart unkn"))]
        assert len(results) == 1, crash
        lost = results == ["restart unknown: no result was recorded"]
        assert crash["out"] == (["node-00001"] if lost else []), crash
        asked = (
            "restart handed over: a person must find out whether the restart of node-00001 was done"
        )
        assert (asked in crash["details"]) == lost, crash
