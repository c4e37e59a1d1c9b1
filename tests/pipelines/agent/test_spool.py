from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from forewarn.pipelines.agent.spool import Spool, SpoolError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a spool with a fault report and a batch."""
    spool = Spool(tmp_path / "spool", 1 << 20)
    spool.put({"a": 1})
    spool.put({"b": 1}, fault=True)
    return spool.folder


@pytest.mark.parametrize(
    "name", ["notes.json", "1.json", "9999999999999999.json", "x", "000000000000001.json.bak"]
)
@pytest.mark.parametrize("make", [Path.touch, Path.mkdir])
def test_stray_files_are_ignored(folder: Path, name: str, make: Callable[[Path], None]) -> None:
    stray = folder / "2-batches" / name
    make(stray)
    spool = Spool(folder, 1 << 20)
    assert [int(path.stem) for path in spool.waiting()] == [2, 1]
    assert spool.strays == [stray]
    assert int(spool.put({"c": 1}).stem) == 3


def test_stale_temporary_files_are_removed(folder: Path) -> None:
    half = folder / "1-faults" / ".000000000000003.json.tmp"
    half.write_text('{"half')
    spool = Spool(folder, 1 << 20)
    assert not half.exists()
    assert (len(spool.waiting()), spool.strays) == (2, [])


def test_full_disk_raises_without_partial_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(folder, 1 << 20)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(SpoolError, match="No space left on device"):
            spool.put({"c": 1})
    assert len(spool.waiting()) == 2
    assert not list(folder.rglob(".*"))
    assert int(spool.put({"c": 2}).stem) == 3


def test_reading_never_replaces_fault_report(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    faults = [spool.put({"x": "f" * 400}, fault=True) for _ in range(2)]
    for _ in range(5):
        spool.put({"x": "r" * 400})
    assert spool.waiting() == faults


def test_fault_reports_respect_limit(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 10_000)
    for number in range(100):
        spool.put({"number": number, "x": "f" * 400}, fault=True)
    used = sum(path.stat().st_size for path in tmp_path.rglob("*.json"))
    assert used <= 10_000
    assert json.loads(spool.waiting()[-1].read_text())["number"] == 99
    assert len(spool.waiting()) + spool.dropped == 100


def test_folder_is_listed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(folder, 300)

    def listed(*_: object) -> None:
        raise AssertionError("the folder was listed")

    monkeypatch.setattr(Path, "iterdir", listed)
    monkeypatch.setattr(Path, "glob", listed)
    for number in range(50):
        spool.put({"number": number})
    spool.remove(spool.waiting()[0])
    assert 2 < len(spool.waiting()) < 30


def test_newest_refused_batches_are_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 800)
    note = tmp_path / "refused" / "notes.txt"
    note.parent.mkdir()
    note.write_text("of a person")
    for number in range(12):
        spool.set_aside(spool.put({"number": number, "text": "x" * 10}))
    aside = sorted(note.parent.glob("*.json"))
    assert [int(path.stem) for path in aside] == [10, 11, 12]
    assert sum(path.stat().st_size for path in aside) <= 100
    assert note.exists()
    spool.set_aside(spool.put({"text": "y" * 200}))  # the newest one stays, whatever its size
    assert [int(path.stem) for path in note.parent.glob("*.json")] == [13]
