"""Crash test of `forewarn advise recovery --begin`: real SIGKILLs, and the call that follows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.long
PROGRAM = Path(__file__).with_name("killed_advice.py")
STRIDE = "11"  # 1 tests each moment; there are some 50
NOTHING: dict[str, Any] = {"events": [], "blocks": [], "alerts": []}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs") / "42"
    form = ("--launcher", "files", "--trainer", "plain")
    fault = ("--ranks", "4", "--fault", "sigkill", "--seed", "1")
    assert main(["simulate", "job", "--out", str(folder), *fault, *form]) == 0
    return folder


def _crashes(job: Path, tmp_path: Path, configuration: str) -> list[dict[str, Any]]:
    """Return what the ledger had after each crash and after the next call; the first was none."""
    config = tmp_path / "my.toml"
    config.write_text(configuration)
    command = [sys.executable, str(PROGRAM), str(job), str(config), STRIDE]
    environment = os.environ | {"PYTHONPATH": str(PROGRAM.parents[3])}
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    crashes = [json.loads(line) for line in result.stdout.splitlines()]
    assert [crash["killed"] for crash in crashes] == [False, *[True] * (len(crashes) - 1)]
    return crashes


def test_crash_and_rung_are_recorded_once_or_not_at_all(job: Path, tmp_path: Path) -> None:
    crashes = _crashes(job, tmp_path, '[respond.recovery]\nrungs = ["replace", "restart"]\n')
    complete, *killed = crashes
    events = complete["after"]["events"]
    assert events == ["JobCrash", "RungBegun"]
    assert len(complete["after"]["blocks"]) == 1
    assert {len(crash["before"]["events"]) for crash in killed} == {0, 2}
    for crash in crashes:
        before, decision = crash["before"], crash["decision"]
        assert crash["after"] == complete["after"]
        assert not before["events"] or before["blocks"]  # the block is there before the rung
        assert (decision["recorded"], decision["state"]) == (
            (False, "under_way") if before["events"] else (True, "begin")
        )
        for name in ("rung", "until", "machine", "cause", "origin", "next_rung"):
            assert decision[name] == complete["decision"][name]


def test_person_is_alerted_once(job: Path, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text("[ladder]\nretries = 0\n")
    crashes = _crashes(job, tmp_path, '[respond]\npolicy = ["site.toml"]\n')
    for crash in crashes:
        assert crash["decision"] == crashes[0]["decision"]
        assert crash["after"] == NOTHING | {"alerts": ["recovery of job 42"]}
    assert {len(crash["before"]["alerts"]) for crash in crashes} == {0, 1}
