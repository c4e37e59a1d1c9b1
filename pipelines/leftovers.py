"""What a process that was killed leaves behind under names of ours, and its removal."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["scratch_folder", "sweep", "sweep_scratch"]

_FILE = re.compile(r"\..+\.(\d{1,10})\.tmp")  # as `store.replacing` names them
_FOLDER = re.compile(r"forewarn-scratch-(\d{1,10})-\w+")


def sweep(folder: Path) -> None:
    """Remove the unfinished files of killed processes in a folder, and nothing below it."""
    if folder.is_dir():
        for path in folder.iterdir():
            if _is_left(_FILE.fullmatch(path.name)) and not path.is_dir():
                path.unlink(missing_ok=True)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder, which `sweep_scratch` knows if nobody removes it."""
    with tempfile.TemporaryDirectory(prefix=f"forewarn-scratch-{os.getpid()}-") as name:
        yield Path(name)


def sweep_scratch() -> None:
    """Remove the temporary folders that killed processes of this user left."""
    for path in Path(tempfile.gettempdir()).iterdir():
        if _is_left(_FOLDER.fullmatch(path.name)) and path.lstat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)


def _is_left(name: re.Match[str] | None) -> bool:
    """Tell a name of ours whose process is no more."""
    if name is None:
        return False
    try:
        os.kill(int(name[1]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
