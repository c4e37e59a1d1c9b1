"""Temporary files next to their targets, and the removal of stale ones."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from forewarn.features.time_units import SECONDS_PER_DAY

__all__ = ["remove_stale_files", "remove_stale_scratch", "scratch_folder", "temporary_path"]

_HOST = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:40] or "host"
_NAME = re.compile(r"\..+\.(?P<host>[A-Za-z0-9-]+)\.(?P<process>[0-9]{1,9})\.tmp")
_FOLDER = re.compile(r"forewarn-scratch-(?P<process>[0-9]{1,9})-\w+")
_ABANDONED_AFTER = SECONDS_PER_DAY  # no write takes as long


def temporary_path(path: Path) -> Path:
    """Return the hidden name under which this process writes a file before renaming it."""
    return path.with_name(f".{path.name}.{_HOST}.{os.getpid()}.tmp")


def remove_stale_files(folder: Path) -> None:
    """Remove the temporary files of processes that no longer exist.

    Processes of another host or container cannot be checked; their files are removed after a day.
    """
    with contextlib.suppress(OSError):  # failing to remove a file is not fatal
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(".tmp")]
        for name in names:
            match = _NAME.fullmatch(name)
            path = folder / name
            if match and (_is_gone(match["host"], int(match["process"])) or _is_abandoned(path)):
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a temporary folder that `remove_stale_scratch` recognises if it is not removed."""
    with tempfile.TemporaryDirectory(prefix=f"forewarn-scratch-{os.getpid()}-") as name:
        yield Path(name)


def remove_stale_scratch() -> None:
    """Remove the temporary folders of this user's killed processes on this machine."""
    for path in Path(tempfile.gettempdir()).iterdir():
        match = _FOLDER.fullmatch(path.name)
        if match and _is_gone(_HOST, int(match["process"])) and path.lstat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)


def _is_gone(host: str, process: int) -> bool:
    if host != _HOST:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:  # the process exists and belongs to another user
        return False
    return False


def _is_abandoned(path: Path) -> bool:
    return time.time() - path.lstat().st_mtime > _ABANDONED_AFTER
