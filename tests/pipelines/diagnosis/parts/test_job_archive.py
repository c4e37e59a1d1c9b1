from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main
from forewarn.pipelines.diagnosis.parts.job_archive import ArchiveError, unpacked

LOG = b"2026-03-04 12:00:00 step 1\nValueError: x\n"


def archive(path: Path, *members: tuple[str, bytes, bytes]) -> Path:
    with tarfile.open(path, mode="w:gz") as file:
        for name, content, kind in members:
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def test_links_are_left_out(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "job.tar.gz",
        ("logs/0.log", LOG, tarfile.REGTYPE),
        ("link", b"", tarfile.SYMTYPE),
    )
    with unpacked(path) as folder:
        files = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()]
    assert files == ["logs/0.log"]


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_path_outside_archive_is_refused(tmp_path: Path, name: str) -> None:
    path = archive(tmp_path / "job.tar.gz", (name, b"x", tarfile.REGTYPE))
    with pytest.raises(ArchiveError, match="leaves the archive"), unpacked(path):
        pass
    assert not (tmp_path.parent / "x").exists()


def test_unpacked_size_is_bounded(tmp_path: Path) -> None:
    path = archive(tmp_path / "job.tar.gz", ("a", b"x" * 5000, tarfile.REGTYPE))
    with pytest.raises(ArchiveError, match="at most 4000 bytes"), unpacked(path, 4000):
        pass


def test_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "job.tar.gz", *((f"{n}.log", LOG * n, tarfile.REGTYPE) for n in range(99))
    )
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ArchiveError, match="cannot be read as an archive"), unpacked(path):
        pass


@pytest.mark.parametrize("prefix", ["", "job-7/"])
def test_archive_is_diagnosed_as_folder(tmp_path: Path, capsys: Any, prefix: str) -> None:
    members = (
        (f"{prefix}logs/{n}.log", LOG if n == 2 else LOG[:27], tarfile.REGTYPE) for n in range(4)
    )
    path = archive(tmp_path / "run.tar.gz", *members)
    assert main(["diagnose", "run", "--job", str(path), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["job"], verdict["kind"], verdict["rank"]) == ("run", "crash", 2)
