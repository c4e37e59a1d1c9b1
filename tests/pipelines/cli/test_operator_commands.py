"""Commands for manual actions, from the command line."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.loop.response_site import STOP_FILE, ResponseSite
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import IncidentState, Outcome


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "my.toml"
    path.write_text("")
    finding = Finding(
        "nhc",
        "1",
        FindingKind.CHECK,
        "check by nhc",
        "node-17",
        Nanoseconds(0),
        Nanoseconds(2**61),
        severity=Severity.ERROR,
    )
    with ResponseSite.from_config(path).ledger() as ledger:
        ledger.record_findings([finding], now=Nanoseconds(0))
    return str(path)


def test_open_incidents_show_blocker(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["respond", "--once", "--config", config]) == 0
    capsys.readouterr()
    assert main(["incidents", "--config", config]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "1  node-17  open since 1970-01-01T00:00:00Z"
    assert others[0] == "    findings: check by nhc"
    assert others[1].startswith("    blocked: ")
    assert main(["incidents", "--config", config, "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["incident"], line["state"], line["machine"]) == (1, "open", "node-17")
    assert line["decision"]["blocked_by"]


def test_json_output_is_only_json(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["switch", "off", "--config", config]) == 0
    capsys.readouterr()
    assert main(["incidents", "--machine", "node-18", "--config", config, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no open incidents" in printed.err
    assert "actions are switched off" in printed.err


def test_person_acknowledges_undoes_and_judges(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ack", "1", "--config", config]) == 0
    assert main(["ack", "1", "--config", config, "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"incident": 1, "changed": False}
    assert main(["outcome", "1", "unknown", "--config", config, "--why", "cause not found"]) == 0
    assert main(["undo", "1", "--config", config]) == 0
    with ResponseSite.from_config(Path(config)).ledger() as ledger:
        (incident,) = ledger.incidents()
        assert (incident.state, incident.outcome) == (IncidentState.OVERRIDDEN, Outcome.UNKNOWN)
        assert incident.acknowledged
        assert [note.act for note in ledger.notes()] == ["undo", "outcome", "ack"]


def test_approval_needs_a_proposal(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["approve", "1", "--config", config]) == 2
    assert "no decision yet" in capsys.readouterr().err
    assert main(["approve", "99", "--config", config]) == 2
    assert "incident 99: does not exist" in capsys.readouterr().err


def test_switch_file_is_removed_only_by_on(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    stop = Path(config).parent / STOP_FILE
    assert main(["switch", "off", "--config", config, "--why", "fire"]) == 0
    assert "fire" in stop.read_text()
    assert main(["respond", "--once", "--config", config]) == 0
    assert main(["incidents", "--config", config]) == 0
    assert "actions are switched off" in capsys.readouterr().out
    assert main(["switch", "on", "--config", config]) == 0
    assert not stop.exists()


def test_switch_works_with_broken_ledger(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(config).parent
    (folder / "ledger.db").write_text("no ledger")
    assert main(["switch", "off", "--config", config]) == 2
    captured = capsys.readouterr()
    assert (folder / STOP_FILE).exists()
    assert "actions are off while" in captured.out
    assert captured.err.count("\n") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system of 256 KiB; only root can mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
@pytest.mark.parametrize("in_use", [False, True])
def test_full_disk_does_not_stop_switch(
    in_use: bool, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_disk / "my.toml"
    config.write_text("")
    loop = ResponseSite.from_config(config).ledger()
    if not in_use:
        loop.close()
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 1024)
    assert main(["switch", "off", "--config", str(config), "--why", "fire"]) == 0
    printed = capsys.readouterr()
    assert "actions are off while" in printed.out
    assert (small_disk / STOP_FILE).stat().st_size == 0
    assert "Traceback" not in printed.err
    off = ResponseSite.from_config(config).switch(None).off()
    assert off is not None
    loop.close()
    (small_disk / "filler").unlink()
    assert main(["switch", "on", "--config", str(config)]) == 0


def test_failed_switch_is_reported(
    config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(path: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "touch", no_room)
    (Path(config).parent / "ledger.db").write_text("no ledger")
    assert main(["switch", "off", "--config", config]) == 2
    captured = capsys.readouterr()
    assert "actions are NOT switched off" in captured.err
    assert "actions are off" not in captured.out


@pytest.mark.parametrize("command", [["switch", "off"], ["drain", "node-17"], ["ack", "1"]])
def test_folder_without_ledger_is_refused(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without --config, in a folder without a ledger, the call is refused and creates nothing."""
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert "contains no ledger.db, expected the `--config` of" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_ledger_of_folder_is_the_default(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(config).parent)
    assert main(["ack", "1"]) == 0


def test_incidents_work_without_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["incidents"]) == 0
    assert capsys.readouterr().out == "no open incidents\n"


def test_token_is_shown_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["respond", "--new-token", "ann:act"]) == 0
    token, told = capsys.readouterr().out.splitlines()
    assert token not in told
    assert "ann:act=" in told
    assert main(["respond", "--new-token", "ann:king"]) == 2


def test_respond_needs_a_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["respond"]) == 2
    assert (
        "expected --once, --score, --slurm-history, or --watch and --serve"
        in capsys.readouterr().err
    )


def test_score_without_actions_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.toml").write_text("")
    assert main(["respond", "--score", "--config", str(tmp_path / "my.toml")]) == 0
    assert capsys.readouterr().out == "No incident yet, nothing to score.\n"


def test_listing_creates_no_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "site.toml"
    config.write_text("")
    assert main(["incidents", "--config", str(config)]) == 0
    assert "no open incidents" in capsys.readouterr().out
    assert main(["respond", "--score", "--config", str(config)]) == 0
    assert list(tmp_path.iterdir()) == [config]


@pytest.mark.parametrize(
    ("table", "column", "value", "why"),
    [
        ("findings", "kind", "foo", "'foo' is not a valid FindingKind"),
        ("findings", "evidence", "{", "Expecting property name"),
        ("findings", "last", "soon", "`last` is 'soon', expected int"),
        ("decisions", "step", "fly", "'fly' is not a valid Step"),
        ("incidents", "opened_at", 2**63 - 1, "expected a number below 2^62"),
    ],
)
def test_unreadable_rows_are_listed(
    config: str,
    capsys: pytest.CaptureFixture[str],
    table: str,
    column: str,
    value: object,
    why: str,
) -> None:
    assert main(["respond", "--once", "--config", config]) == 0
    with closing(sqlite3.connect(Path(config).with_name("ledger.db"))) as ledger, ledger:
        ledger.execute(f'UPDATE {table} SET "{column}" = ? WHERE id = 1', (value,))
    capsys.readouterr()
    for command in (["incidents"], ["incidents", "--json"], ["respond", "--once"]):
        assert main([*command, "--config", config]) == 0
        captured = capsys.readouterr()
        line = f"the ledger: row 1 of `{table}` is quarantined: "
        assert line in captured.err
        assert why in captured.err
        assert (line in captured.out) is (command == ["incidents"])


def test_block_is_listed_and_lifted(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    add = ["blocks", "add", "4711", "node-17", "--why", "wrong losses", "--config", config]
    assert main(add) == 0
    assert "node-17 for job 4711: intended" in capsys.readouterr().out
    assert main(add) == 2
    assert "job 4711 is already blocked from node-17" in capsys.readouterr().err
    assert main(["blocks", "list", "--config", config, "--json"]) == 0
    block = json.loads(capsys.readouterr().out)
    assert (block["block"], block["state"], block["reason"]) == (1, "intended", "wrong losses")
    assert main(["blocks", "lift", "1", "--config", config]) == 0
    assert "lifting (lifted by " in capsys.readouterr().out
    assert main(["blocks", "lift", "2", "--config", config]) == 2
    assert "block 2: not an open block" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("4711;reboot", "node-17"), "expected a name of the scheduler"),
        (("4711", "node-[1-9]"), "expected a name of the scheduler"),
        (("4711", "node-17", "--until", "2020-01-01"), "found `--until` in the past"),
    ],
)
def test_invalid_block_is_refused(
    config: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    with suppress(SystemExit):
        assert main(["blocks", "add", *arguments, "--why", "x", "--config", config]) == 2
    assert words in capsys.readouterr().err
    assert main(["blocks", "list", "--config", config]) == 0
    assert "no open blocks" in capsys.readouterr().out
