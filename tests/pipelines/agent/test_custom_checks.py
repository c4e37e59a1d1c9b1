from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.time_units import HOUR, MINUTE, SECOND
from forewarn.pipelines.agent.check_command import run_check_command
from forewarn.pipelines.agent.custom_checks import CustomChecks
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.agent_policy import load_policy
from forewarn.pipelines.config.toml_tables import SettingsError


class Clock:
    def __init__(self) -> None:
        self.time = 1_740_787_200 * SECOND

    def now(self) -> int:
        return self.time

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.time += round(seconds * SECOND)
        return until.is_set()


def run(command: list[str], seconds: int) -> tuple[str, str]:
    table = {"command": command, "timeout": f"{seconds}s"}
    return run_check_command(CheckTable.model_validate(table))


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


@pytest.mark.parametrize(
    ("code", "severity"), [(0, "ok"), (1, "warning"), (2, "error"), (3, "notice"), (77, "notice")]
)
def test_exit_code_is_the_severity(code: int, severity: str) -> None:
    result = run(shell(f"echo; echo 'two lines'; echo more; exit {code}"), 10)
    assert result[0] == severity
    assert "two lines" in result[1]
    assert "more" not in result[1]


@pytest.mark.parametrize(
    ("text", "severity", "words"),
    [
        ("free 40 GB", "ok", "free 40 GB"),
        ("free 4 GB", "error", "4 GiB is below the limit 10"),
        ("no answer", "notice", "no value in the output: no answer"),
    ],
)
def test_value_and_limit_are_those_of_an_inspection(text: str, severity: str, words: str) -> None:
    table = {"command": ["/bin/echo", text], "limit": {"min": 10}}
    value = {"regex": r"free (\d+)", "unit": "GiB"}
    result = run_check_command(CheckTable.model_validate({**table, "value": value}))
    assert result[0] == severity
    assert words in result[1]


def test_missing_program_is_unknown(tmp_path: Path) -> None:
    severity, text = run([str(tmp_path / "absent"), "-x"], 10)
    assert severity == "notice"
    assert "absent cannot be run" in text


def test_output_is_bounded_and_printable() -> None:
    script = "import sys; sys.stdout.buffer.write(b'\\x1b[31m' + b'x' * (1 << 22)); sys.exit(1)"
    severity, text = run([sys.executable, "-c", script], 60)
    assert severity == "warning"
    assert len(text) == 500
    assert text.isprintable()


def test_timeout_kills_the_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    severity, text = run(shell(f"sleep 600 & echo $! > {pid}; wait"), 2)
    assert (severity, text) == ("notice", "unknown: no result within 2 s")
    child = int(pid.read_text())
    for _ in range(500):
        if not _runs(child):
            break
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_child_that_keeps_the_output_is_no_delay() -> None:
    assert run(shell("sleep 600 & echo good"), 300) == ("ok", "good")


def test_check_runs_at_low_priority_without_shell() -> None:
    _, text = run([sys.executable, "-c", "import os; print(os.nice(0))"], 60)
    assert int(text) >= min(19, os.nice(0))
    assert run(["/bin/echo", "$HOME; id"], 60) == ("ok", "$HOME; id")


def checks(tmp_path: Path, sent: list[dict[str, Any]], clock: Clock) -> CustomChecks:
    table = CheckTable.model_validate(
        {"command": shell(f"cat {tmp_path / 'text'}; exit $(cat {tmp_path / 'code'})")}
    )

    return CustomChecks({"disk": table}, "g1", clock, send_into(sent))


def send_into(sent: list[dict[str, Any]]) -> Callable[[list[dict[str, Any]]], bool]:
    def send(rows: list[dict[str, Any]]) -> bool:
        sent.extend(rows)
        return True

    return send


def test_changes_and_hourly_repeats_are_sent(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("sda\n")
    sent: list[dict[str, Any]] = []
    clock = Clock()
    custom = checks(tmp_path, sent, clock)
    for minute, code in enumerate([0] * 61 + [2, 2, 0]):
        clock.time = 1_740_787_200 * SECOND + minute * MINUTE
        if code or minute in (0, 60, 61, 63):
            (tmp_path / "code").write_text(str(code))
        if minute % 10 == 0 or minute > 59:
            custom.run_once("disk")
    assert [row["severity"] for row in sent] == ["ok", "ok", "error", "ok"]
    assert sent[1]["timestamp"] - sent[0]["timestamp"] == HOUR
    assert sent[2]["check"].startswith("custom disk@")
    assert (sent[2]["kind"], sent[2]["raw"], sent[2]["machine_id"]) == ("check", "sda", "g1")


def test_result_that_was_not_stored_is_sent_again(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("sda\n")
    (tmp_path / "code").write_text("0")
    sent: list[dict[str, Any]] = []
    custom = checks(tmp_path, sent, Clock())
    custom.send = lambda _: False
    custom.run_once("disk")
    custom.send = send_into(sent)
    custom.run_once("disk")
    assert len(sent) == 1


def test_definition_is_its_identity() -> None:
    first = CheckTable.model_validate({"command": ["a", "b"]})
    assert first.identity() == CheckTable.model_validate({"command": ["a", "b"]}).identity()
    for other in ({"command": ["a b"]}, {"command": ["a", "b"], "every": "6min"}):
        assert first.identity() != CheckTable.model_validate(other).identity()


@pytest.mark.parametrize(
    "lines",
    [
        'command = "df -h"',
        "command = []",
        'command = [""]',
        'command = ["df"]\nevery = "10ms"',
        'command = ["df"]\nevery = "5s"\ntimeout = "6s"',
        'command = ["df"]\nshell = true',
    ],
)
def test_invalid_checks_are_refused(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(f"[check.disk]\n{lines}\n")
    with pytest.raises(SettingsError, match=r"check\.disk|`command`"):
        load_policy(path)


def test_names_of_checks_are_plain(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('[check."a b@c"]\ncommand = ["df"]\n')
    with pytest.raises(SettingsError):
        load_policy(path)
    assert main(["agent", "--policy", str(path), "--once"]) == 2
