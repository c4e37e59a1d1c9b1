from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.agent.agent_state import AgentState
from forewarn.pipelines.agent.readiness import Readiness
from forewarn.pipelines.cli.ready import run_ready
from forewarn.pipelines.runtime.timestamps import format_iso

MINUTE = 60 * 10**9
XID = {"kind": "xid", "code": 79, "gpu_uuid": "GPU-1", "raw": "NVRM: Xid 79"}
MACHINE = ("--machine", "node-1")


@pytest.fixture
def state(tmp_path: Path) -> AgentState:
    return AgentState(tmp_path, print)


def codes(folder: Path, *arguments: str) -> tuple[int, int, int]:
    """Return the exit codes without a purpose, in a prolog and in a health check."""
    options = [*(arguments or MACHINE), "--state", str(folder)]
    purposes: tuple[list[str], ...] = ([], ["--for", "prolog"], ["--for=healthcheck"])
    plain, prolog, check = (run_ready([*options, *purpose]) for purpose in purposes)
    return plain, prolog, check


def write(state: AgentState, *events: dict[str, Any], minutes_ago: int = 1) -> None:
    now = time.time_ns() - minutes_ago * MINUTE
    rows = [{"timestamp": now} | event for event in events]
    Readiness(state, "node-1").add(rows, now=now, interval=10 * MINUTE)


def test_machine_without_damage_is_ready(state: AgentState) -> None:
    write(state)
    assert codes(state.folder) == (0, 0, 0)


@pytest.mark.parametrize(
    "event", [XID, {"kind": "lost"}, {"kind": "needs_reset", "action": "reset"}]
)
def test_fresh_damage_stops_jobs(
    state: AgentState, event: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    write(state, event)
    assert codes(state.folder) == (1, 1, 0)
    assert event["kind"] in capsys.readouterr().err


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "xid", "code": 31},  # an error of the application
        {"kind": "blind"},
        {"kind": "hang"},
        {"kind": "check", "severity": "warning"},
    ],
)
def test_other_events_are_no_damage(state: AgentState, event: dict[str, Any]) -> None:
    write(state, event)
    assert codes(state.folder) == (0, 0, 0)


def test_damage_is_stated_for_less_than_three_intervals(state: AgentState) -> None:
    write(state, XID, minutes_ago=29)
    assert codes(state.folder)[1] == 1
    write(state, XID, minutes_ago=30)
    assert codes(state.folder) == (2, 0, 0)  # the agent has stopped


def test_damage_that_ended_is_dropped(state: AgentState) -> None:
    readiness, now = Readiness(state, "node-1"), time.time_ns()
    readiness.add(
        [XID | {"timestamp": now}, {"kind": "lost", "timestamp": now}], now=now, interval=MINUTE
    )
    readiness.replace([], now=now, interval=MINUTE)
    kinds = [row["kind"] for row in json.loads((state.folder / "ready.json").read_text())["faults"]]
    assert kinds == ["xid"]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "{}",
        '{"machine": "node-1", "at": 3, "interval_seconds": 600, "faults": []}',
        '{"machine": "node-1", "at": "now", "interval_seconds": 600, "faults": []}',
        json.dumps(
            {
                "machine": "node-1",
                "at": format_iso(time.time_ns()),
                "interval_seconds": 1e9,
                "faults": [3],
            }
        ),
    ],
)
def test_unusable_file_empties_no_cluster(
    tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "ready.json").write_text(text)
    assert codes(tmp_path) == (2, 0, 0)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all("ready.json: " in line for line in lines)


def test_wrong_usage_empties_no_cluster(state: AgentState) -> None:
    write(state, XID)
    assert codes(state.folder, "--machine", "node-2") == (2, 0, 0)
    assert codes(state.folder, *MACHINE, "--bogus") == (2, 0, 0)


def test_command_imports_only_standard_library(state: AgentState) -> None:
    write(state)
    arguments = ["forewarn", "ready", *MACHINE, "--state", str(state.folder)]
    code = (
        f"import sys; before = set(sys.modules); sys.argv = {arguments!r}; "
        "from forewarn.pipelines.cli.entry import main; code = main(); "
        "new = {n.split('.')[0] for n in set(sys.modules) - before}; "
        "ours = sorted(n for n in sys.modules if n.startswith('forewarn.pipelines.')); "
        "print(code, sorted(new - set(sys.stdlib_module_names)), *ours)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = [f"forewarn.pipelines.{n}" for n in ("cli", "cli.entry", "cli.ready", "runtime")]
    expected = ["0", "['forewarn']", *names, "forewarn.pipelines.runtime.terminal"]
    assert done.stdout.splitlines()[-1].split() == expected
