"""Inspections of several machines through a command, and the exit code for an agent's check."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forewarn.features.inspection.check_table import CheckTable
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.inspection import host_runs
from forewarn.pipelines.inspection.host_runs import inspect_hosts
from forewarn.pipelines.inspection.result_files import nagios_result, read_results

# Runs a command as `ssh HOST COMMAND` would, with the command line of this checkout.
LAUNCHER = """#!/bin/sh
host=$1; shift 2  # the machine, and the name of our program
case $host in
n1|n2) exec {program} "$@";;
n3) echo "ssh: connect to host n3: No route to host"; exit 255;;
n4) echo '{{"timestamp": 1, "machine": "n1", "check": "a", "run": "r", "status": "ok"}}';;
n5) exec sleep 600;;
esac
"""


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(host_runs, "_REMOTE_FOLDER", str(tmp_path / "remote"))
    path = tmp_path / "launcher"
    path.write_text(LAUNCHER.format(program=Path(sys.executable).with_name("forewarn")))
    path.chmod(0o755)
    return path


def test_each_machine_has_results_or_a_reason(
    launcher: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site.toml"
    site.write_text('[check.fine]\ncommand = ["true"]\nwhen = ["mine"]\n')
    arguments = ["inspect", "run", "--set", "mine", "--checks", str(site), "--hosts", "n[1-4]"]
    out = tmp_path / "out"
    assert main([*arguments, "--via", f"{launcher} {{host}}", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "n1: 1 checks: 1 ok" in lines
    rows = {row["machine"]: row for row in read_results(out).to_pylist()}
    assert {name: (row["check"], row["status"]) for name, row in rows.items()} == {
        "n1": ("fine", "ok"),
        "n2": ("fine", "ok"),
        "n3": ("reached", "failed"),
        "n4": ("reached", "failed"),
    }
    assert "No route to host" in rows["n3"]["text"]
    assert "column `versions`" in rows["n4"]["text"] or "another machine" in rows["n4"]["text"]


def test_machine_that_does_not_answer_is_a_timeout(
    launcher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_runs, "_GRACE_SECONDS", 0.2)
    via = [str(launcher), "{host}"]
    (row,) = inspect_hosts(["n5"], via, ["--set", "x"], tmp_path, name="x", timeout=0.1)
    assert (row["check"], row["status"]) == ("reached", "timeout")


@pytest.mark.parametrize(
    ("statuses", "level", "code", "text"),
    [
        (["ok", "not_run"], "drain", 0, "2 values ok"),
        (["ok", "degraded"], "drain", 1, "c 0: degraded: why"),
        (["ok", "failed"], "note", 1, "c 0: failed: why"),
        (["degraded", "failed"], "no_new_jobs", 2, "c 0: failed: why"),
        (["timeout"], "drain", 2, "c 0: timeout: why"),
        (["blind", "not_run"], "drain", 3, "no check has a result"),
    ],
)
def test_exit_code_for_a_check_of_an_agent(
    statuses: list[str], level: str, code: int, text: str
) -> None:
    table = CheckTable.model_validate({"command": ["true"], "level": level})
    rows = [{"check": "c", "slot": "0", "status": status, "text": "why"} for status in statuses]
    assert nagios_result(rows, {"c": table}) == (code, text)


def test_command_exits_as_nagios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site.toml"
    site.write_text('[check.bad]\ncommand = ["sh", "-c", "echo no; exit 2"]\nwhen = ["mine"]\n')
    arguments = ["inspect", "run", "--set", "mine", "--checks", str(site), "--machine", "n8"]
    assert main([*arguments, "--nagios", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().out == "bad: failed: no\n"
