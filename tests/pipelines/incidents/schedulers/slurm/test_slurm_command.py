"""Tests of calls to failing, hanging and missing programs, with scripts instead of Slurm's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ended_processes import all_end

from forewarn.pipelines.incidents.schedulers.driver import DriverError, DriverTimeoutError
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand

Script = Callable[[str], SlurmCommand]


@pytest.fixture
def scontrol(tmp_path: Path) -> Script:
    """Return `command(text)`, whose `scontrol` is a shell script of this text."""

    def command(text: str) -> SlurmCommand:
        program = tmp_path / "scontrol"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return SlurmCommand("/etc/slurm/slurm.conf", 30.0, path=f"{tmp_path}:/usr/bin:/bin")

    return command


@pytest.mark.parametrize(
    "text",
    [
        "slurm_update error: Unable to contact slurm controller (connect failure)",
        "slurm_update error: Socket timed out on send/recv operation",
        "slurm_update error: Zero Bytes were transmitted or received",
        "slurm_update error: Communication connection failure",
    ],
)
def test_communication_errors_are_timeouts(scontrol: Script, text: str) -> None:
    with pytest.raises(DriverTimeoutError, match="scontrol update nodename=n1: slurm_update"):
        scontrol(f"echo '{text}' >&2; exit 1").change("scontrol", "update", "nodename=n1", "x=y")


@pytest.mark.parametrize(
    "text",
    [
        "slurm_update error: Invalid node name specified",
        "slurm_update error: Access/permission denied",
        "slurm_update error: Invalid node state specified",
        "sudo: a password is required",
    ],
)
def test_refusal_is_one_line(scontrol: Script, text: str) -> None:
    with pytest.raises(DriverError) as caught:
        scontrol(f"echo '{text}' >&2; echo more >&2; exit 1").ask("scontrol", "show", "node")
    assert type(caught.value) is DriverError
    assert str(caught.value) == f"scontrol show node: {text} more"


def test_hanging_program_is_killed_with_children(scontrol: Script) -> None:
    command = replace(scontrol('sh -c "sleep 1000; :" "$0" & wait'), timeout=2.0)
    with pytest.raises(DriverTimeoutError, match="no answer in 2 s"):
        command.ask("scontrol", "show", "node")
    assert all_end(f"{command.path.split(':')[0]}/scontrol")


def test_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="scontrol: No such file"):
        SlurmCommand(path=str(tmp_path)).ask("scontrol", "show", "node")


def test_environment_has_no_secrets(scontrol: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREWARN_TOKEN", "secret")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    printed = scontrol("env").ask("scontrol").split()
    names = {line.partition("=")[0] for line in printed} - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names == {"PATH", "LC_ALL", "TZ", "SLURM_TIME_FORMAT", "SLURM_CONF"}


def test_only_changes_use_sudo(scontrol: Script, tmp_path: Path) -> None:
    command = scontrol("echo alone")
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\nprintf \'["%s", "%s", "%s"]\' "$@"\n')
    sudo.chmod(0o755)
    by_sudo = SlurmCommand(path=command.path, before_changes=("sudo", "-n"))
    assert by_sudo.ask("scontrol", "ping") == "alone\n"
    assert json.loads(by_sudo.change("scontrol", "a b")) == ["-n", "scontrol", "a b"]


def test_invalid_utf8_is_replaced(scontrol: Script) -> None:
    assert scontrol(r"printf 'Reason=\303('").ask("scontrol") == "Reason=\ufffd("
