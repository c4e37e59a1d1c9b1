from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from forewarn.pipelines.storage.files.file_lock import locked

# Increments a number in a file, which fails if two processes do it at once.
COUNTER = """
import sys
from pathlib import Path
from forewarn.pipelines.storage.files.file_lock import locked
folder = Path(sys.argv[1])
for _ in range(200):
    with locked(folder / ".lock", "another counter"):
        number = int((folder / "number").read_text())
        (folder / "number").write_text(str(number + 1))
"""


def test_lock_is_exclusive_and_removed(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    call = [sys.executable, "-c", COUNTER, str(tmp_path)]
    processes = [subprocess.Popen(call, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(600) for process in processes] == [0, 0, 0]
    assert (tmp_path / "number").read_text() == "600"
    assert not (tmp_path / ".lock").exists()


def test_removed_folder_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    folder.mkdir()
    with locked(folder / ".lock", "another"):
        (folder / ".lock").unlink()
        folder.rmdir()
    assert not folder.exists()
