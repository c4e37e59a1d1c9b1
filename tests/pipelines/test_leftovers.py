"""What killed processes leave behind is removed, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.pipelines import backtest as backtest_module
from forewarn.pipelines.leftovers import scratch_folder, sweep, sweep_scratch


@pytest.fixture(scope="module")
def ended() -> int:
    """Return the id of a process that is no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_only_unfinished_files_of_dead_processes_are_swept(tmp_path: Path, ended: int) -> None:
    stay = {
        "scores.parquet", ".scores.parquet.tmp", f"scores.parquet.{ended}.tmp", ".12ab.tmp",
        f".scores.parquet.{os.getpid()}.tmp", f".scores.parquet.{ended}.tmp.bak",
        ".1.9999999999.tmp", ".1.99999999999.tmp",
    }  # fmt: skip
    for name in (*stay, f".scores.parquet.{ended}.tmp", f".report.json.{ended}.tmp"):
        (tmp_path / name).write_text("")
    below = tmp_path / "below" / f".a.{ended}.tmp"
    below.parent.mkdir()
    below.write_text("")
    folder = tmp_path / f".folder.{ended}.tmp"
    folder.mkdir()
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*stay, "below", folder.name}
    assert below.exists()
    sweep(tmp_path / "not there")


def test_scratch_folders_of_dead_processes_are_swept(
    tmp_path: Path, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"forewarn-scratch-{ended}-abc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"forewarn-scratch-{ended}-link").symlink_to(tmp_path / "elsewhere")
    with scratch_folder() as own:
        sweep_scratch()
        assert own.is_dir()
    sweep_scratch()
    assert (tmp_path / "elsewhere").is_dir()
    assert not (tmp_path / f"forewarn-scratch-{ended}-abc").exists()


def test_a_backtest_removes_what_one_that_was_killed_left(
    backtest: Path, tmp_path: Path, ended: int
) -> None:
    (tmp_path / f".report.html.{ended}.tmp").write_text("unfinished")
    report = json.loads((backtest / "report.json").read_text())
    backtest_module._write(tmp_path, {}, report)
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", "report.json"}
