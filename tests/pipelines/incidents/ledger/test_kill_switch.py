"""Tests of the kill switch by file and by row, with and without a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.kill_switch import KillSwitch, KillSwitchError
from forewarn.pipelines.incidents.ledger.ledger import Ledger

NOW = Nanoseconds(1_772_366_400 * SECOND)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        yield ledger


def test_file_or_ledger_switches_acting_off(ledger: Ledger, tmp_path: Path) -> None:
    switch = KillSwitch(tmp_path / "stop", ledger)
    assert switch.off() is None
    assert switch.stop(now=NOW, who="ann", why="storm")
    switch.file.unlink()
    by_ledger = switch.off()
    assert by_ledger is not None
    assert (by_ledger.who, by_ledger.why, by_ledger.at) == ("ann", "storm", NOW)
    switch.lift(now=NOW, who="bob", why="over")
    assert switch.off() is None
    switch.file.write_text("down for the week\n")
    by_file = switch.off()
    assert by_file is not None
    assert (by_file.acting, by_file.who, by_file.why) == (False, "file", "down for the week")


def test_switch_stops_without_ledger_but_cannot_resume(tmp_path: Path) -> None:
    switch = KillSwitch(tmp_path / "stop", None)
    assert switch.off() is None
    assert not switch.stop(now=NOW, who="ann", why="storm")
    off = switch.off()
    assert off is not None
    assert (off.who, off.why) == ("ann", "storm")
    with pytest.raises(LedgerError, match="not open"):
        switch.lift(now=NOW, who="ann", why="over")
    assert switch.off() == off


def test_any_existing_path_switches_off(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "stop").mkdir()
    off = KillSwitch(tmp_path / "stop", ledger).off()
    assert off is not None
    assert (off.who, off.why) == ("file", "")
    switch = KillSwitch(tmp_path / "stop", ledger)
    assert not switch.stop(now=NOW, who="ann", why="storm")  # only the row was written
    assert ledger.switched_off() is not None
    with pytest.raises(KillSwitchError, match="cannot be removed"):
        switch.lift(now=NOW, who="ann", why="over")
    with pytest.raises(KillSwitchError, match="NOT switched off"):
        KillSwitch(tmp_path / "stop", None).stop(now=NOW, who="ann", why="storm")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe" * 10_000)
    off = KillSwitch(tmp_path / "bytes", ledger).off()
    assert off is not None
    assert len(off.why) <= 1000
