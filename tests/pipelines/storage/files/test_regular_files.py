from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.storage.files.regular_files import (
    UnreadableFolderError,
    files_below,
    matching_paths,
)


def test_paths_are_sorted(tmp_path: Path) -> None:
    for name in ("date=2/b.parquet", "date=2/a.parquet", "date=1/c.parquet", "x/d.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "date=3").touch()
    paths = matching_paths(tmp_path, "date=*/*.parquet")
    assert paths == sorted(tmp_path.glob("date=*/*.parquet"))
    assert len(paths) == 3
    assert matching_paths(tmp_path / "absent", "*") == []


def test_hidden_files_are_skipped(tmp_path: Path) -> None:
    names = ("a/b/2.log", "a/b/1.log", "a/b.log", "c.log", ".hidden/d.log", "a/.e.log")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    below = [str(path.relative_to(tmp_path)) for path in files_below(tmp_path)]
    assert below == ["a/b/1.log", "a/b/2.log", "a/b.log", "c.log"]
    assert [tmp_path / name for name in below] == sorted(tmp_path / name for name in names[:4])


def test_unreadable_folder_is_an_error(tmp_path: Path, close: Any) -> None:
    (tmp_path / "date=1").mkdir()
    close(tmp_path / "date=1")
    with pytest.raises(
        UnreadableFolderError, match=r"date=1: cannot be listed \(Permission denied"
    ):
        matching_paths(tmp_path, "date=*/*.parquet")


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        (["doctor", "."], "date=2025-03-01"),
        (["review", "--at-risk", ".", "--failures", "f.csv"], "date=2025-03-01"),
        (["detect", "fit", "--metrics", ".", "--model", "m"], "."),
        (["ingest", "--raw", ".", "--out", "records"], "date=2025-03-01"),
        (["policy", "replay", "--records", "."], "_events"),
    ],
)
def test_commands_reject_unreadable_folders(
    command: list[str],
    folder: str,
    tmp_path: Path,
    close: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("date=2025-03-01", "_events"):
        (tmp_path / name).mkdir()
    close(Path(folder))
    assert main(command) == 2
    assert f"{folder}: cannot be listed (Permission denied)" in capsys.readouterr().err
