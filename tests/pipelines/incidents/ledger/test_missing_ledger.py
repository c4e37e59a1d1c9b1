"""Tests of a lost ledger: no actions without it, and no silent creation of a new one."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.incidents.ledger.database import LedgerError, MissingLedgerError, OpenMode
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.response_site import STOP_FILE, ResponseSite
from forewarn.response.state.machine import Machine, ServiceState

CONFIG = """
[respond]
ledger = "{url}"
driver = "slurm"
[respond.pools.train]
mode = "{mode}"
"""
MARKED = Machine("m1", ServiceState.DRAINED, "forewarn:17 xid 79", gpus=8, pool="train")
AVOIDED = Machine("m2", ServiceState.IN_SERVICE, gpus=8, pool="train", avoided=True)
PLAIN = Machine("m3", ServiceState.DRAINED, "Tom: DIMM", gpus=8, pool="train")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> MemoryDriver:
    driver = MemoryDriver({m.name: m for m in (MARKED, AVOIDED, PLAIN)}, Nanoseconds(0))
    driver.reports_clock = False
    monkeypatch.setattr(ResponseSite, "driver", lambda _: driver)
    return driver


@pytest.fixture(params=["propose", "act"])
def config(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> str:
    path = tmp_path / "my.toml"
    path.write_text(CONFIG.format(url=url, mode=request.param))
    return str(path)


@pytest.mark.usefixtures("driver")
def test_missing_ledger_is_created_only_on_request(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    commands = ["respond --once", "respond --watch", "respond --serve", "drain m1", "undo 1"]
    for command in commands:
        assert main([*command.split(), "--config", config]) == 2
        *notes, line = capsys.readouterr().err.splitlines()
        assert "there is no ledger" in line
        assert "`forewarn respond --new-ledger`" in line
        assert all("alert" in text for text in notes)
        assert sorted(tmp_path.iterdir()) == before
    assert main(["switch", "off", "--config", config]) == 2  # the stop file works without a ledger
    assert (tmp_path / STOP_FILE).exists()
    assert main(["respond", "--new-ledger", "--config", config]) == 0
    assert main(["respond", "--once", "--config", config]) == 0
    assert main(["respond", "--new-ledger", "--config", config]) == 2
    assert "contains a ledger already" in capsys.readouterr().err


def test_observe_mode_creates_ledger(url: str, tmp_path: Path, driver: MemoryDriver) -> None:
    path = tmp_path / "my.toml"
    path.write_text(CONFIG.format(url=url, mode="observe"))
    assert main(["respond", "--once", "--config", str(path)]) == 0
    assert driver.calls == []


def test_unknown_marks_raise_alert_and_are_listed(
    config: str, driver: MemoryDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    alert = "2 machines carry a mark of forewarn without an action in the ledger: m1, m2"
    assert main(["respond", "--once", "--config", config]) == 2
    assert alert in capsys.readouterr().err  # with a lost ledger
    assert main(["incidents", "--config", config]) == 0
    assert "m1  mark without an action in the ledger: forewarn:17" in capsys.readouterr().out
    assert main(["respond", "--new-ledger", "--once", "--config", config]) == 0
    assert alert in capsys.readouterr().err  # and with an empty one
    assert main(["respond", "--once", "--config", config]) == 0
    assert alert not in capsys.readouterr().err  # raised once
    assert main(["incidents", "--json", "--config", config]) == 0
    lines = capsys.readouterr().out
    assert '"machine": "m1", "mark": "forewarn:17 xid 79"' in lines
    assert '"machine": "m2", "mark": "avoided: raised node weight"' in lines
    assert '"mark": "Tom' not in lines
    assert driver.calls == []


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("command", ["incidents", "incidents --json", "respond --score"])
def test_reading_creates_no_ledger(command: str, config: str) -> None:
    if "sqlite" in Path(config).read_text():  # a nonempty file without tables
        path = next(
            line.split('"')[1].removeprefix("sqlite:///")
            for line in Path(config).read_text().splitlines()
            if line.startswith("ledger")
        )
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("VACUUM")
    assert main(["respond", "--once", "--config", config]) == 2
    main([*command.split(), "--config", config])
    assert main(["respond", "--once", "--config", config]) == 2


@pytest.mark.parametrize("content", [None, b""])
def test_missing_or_empty_file_is_no_ledger(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MissingLedgerError, match="there is no ledger"):
        Ledger.open(f"sqlite:///{path}", opening=OpenMode.EXISTING)
    assert path.exists() == (content is not None)


def test_existing_ledger_is_not_replaced(url: str) -> None:
    Ledger.open(url, opening=OpenMode.NEW).close()
    with pytest.raises(LedgerError, match="contains a ledger already"):
        Ledger.open(url, opening=OpenMode.NEW)
    Ledger.open(url, opening=OpenMode.EXISTING).close()


@pytest.mark.parametrize("replaced", [False, True])
def test_removed_ledger_accepts_no_writes(replaced: bool, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    other = tmp_path / "other.db"
    Ledger.open(f"sqlite:///{other}").close()
    with Ledger.open(f"sqlite:///{path}") as ledger:
        ledger.record_heartbeat("loop", Nanoseconds(1))
        path.unlink()
        if replaced:
            os.rename(other, path)
        for write in (lambda: ledger.record_heartbeat("loop", Nanoseconds(2)), ledger.open_actions):
            message = "was replaced while it was open" if replaced else "was removed while it was"
            with pytest.raises(LedgerError, match=message) as caught:
                write()
            assert isinstance(caught.value, MissingLedgerError) != replaced
    assert path.exists() == replaced
