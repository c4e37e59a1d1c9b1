"""The next run removes the stale temporary files of killed processes, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from forewarn.pipelines.at_risk.at_risk_list import AtRiskList
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.stale_temporary_files import (
    remove_stale_scratch,
    scratch_folder,
    temporary_path,
)

KILLED = """
import os, sys
from pathlib import Path
from forewarn.pipelines.storage.files.atomic_files import replacing
with replacing(Path(sys.argv[1])) as path:
    path.write_text("half")
    os.kill(os.getpid(), 9)
"""


def killed_while_it_writes(path: Path) -> Path:
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -9
    (left,) = path.parent.glob(".*.tmp")
    return left


def test_next_write_removes_stale_files(tmp_path: Path) -> None:
    left = killed_while_it_writes(tmp_path / "report.json")
    with replacing(tmp_path / "other.json") as path:
        path.write_text("whole")
    assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def test_new_list_removes_stale_files(tmp_path: Path) -> None:
    left = killed_while_it_writes(tmp_path / "date=2025-03-01" / "at_risk.csv")
    end = pd.to_datetime([], utc=True)
    names = ("rank", "gpu_serial", "probability", "flagged", "flagged_by", "reasons")
    rows = pd.DataFrame({name: [] for name in names} | {"window_end": end, "valid_until": end})
    unscored = pd.DataFrame({"gpu_serial": [], "reason": []})
    AtRiskList(0, rows.astype({"flagged": bool}), unscored, 0.003, 24.0, "v").write(tmp_path)
    assert not left.exists()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            temporary_path(Path("x")).name.replace(str(os.getpid()), str(os.getppid())),
            id="of a process that runs",
        ),
        ".report.json.other-host.123.tmp",
        ".report.json.tmp",
        "report.json.other-host.123.tmp",
        ".vim-swap.tmp",
    ],
)
def test_files_of_other_processes_are_kept(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("theirs")
    with replacing(tmp_path / "report.json") as path:
        path.write_text("whole")
    assert (tmp_path / name).exists()


def test_files_of_other_hosts_expire(tmp_path: Path) -> None:
    left = tmp_path / ".report.json.other-host.123.tmp"
    left.write_text("half")
    os.utime(left, (time.time() - 90_000,) * 2)
    with replacing(tmp_path / "report.json") as path:
        path.write_text("whole")
    assert not left.exists()


def half_written(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("half")
        raise OSError(28, "No space left on device")


def test_disk_error_names_the_target(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        half_written(tmp_path / "a")
    assert caught.value.filename == str(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_stale_scratch_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    ended = process.pid
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"forewarn-scratch-{ended}-abc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"forewarn-scratch-{ended}-link").symlink_to(tmp_path / "elsewhere")
    with scratch_folder() as own:
        remove_stale_scratch()
        assert own.is_dir()
    remove_stale_scratch()
    assert (tmp_path / "elsewhere").is_dir()
    assert not (tmp_path / f"forewarn-scratch-{ended}-abc").exists()
