"""Files with a job's logs, read in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from forewarn.pipelines.diagnosis.parts.captures import is_capture, name_in_job
from forewarn.pipelines.diagnosis.parts.job_folder import PARTS, UNSEEN, JobFolder, JobFolderError
from forewarn.pipelines.storage.files.regular_files import files_below

__all__ = ["log_files", "read_bounded"]

_MAX_TOTAL_BYTES = 2**31
_MAX_FILE_BYTES = 2**28
_HEAD_BYTES = 2**20  # a job's start says who the writers are


def log_files(folder: JobFolder) -> list[tuple[str, Path]]:
    """Return name and path of the files that may be logs, by name and without symbolic links.

    They are below `logs`, or anywhere outside the other parts in a folder without `logs`.
    """
    logs = folder.part("logs")
    if folder.path.is_file():
        paths: Iterable[Path] = [folder.path]
    elif logs is not None and logs.is_dir():
        paths = _files(logs)
    else:
        parts = {UNSEEN, *(name.partition("/")[0] for name in PARTS.values())}
        below = _files(folder.path)
        paths = (p for p in below if p.relative_to(folder.path).parts[0] not in parts)
    return sorted((name_in_job(folder, path), path) for path in paths if not is_capture(path))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in files_below(folder, JobFolderError) if not path.is_symlink())


def read_bounded(path: Path, files: int) -> tuple[bytes, str]:
    """Return a file's text and what was left out: the middle of a file that is too large.

    Parameters
    ----------
    path : Path
    files : int
        Number of files that share the memory.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    limit = max(2 * _HEAD_BYTES, min(_MAX_FILE_BYTES, _MAX_TOTAL_BYTES // files))
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= limit:
            return stream.read(limit), ""
        head = stream.read(_HEAD_BYTES)
        stream.seek(size - (limit - _HEAD_BYTES))
        tail = stream.read(limit - _HEAD_BYTES)
    head, tail = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :]
    left_out = (size - len(head) - len(tail)) / 2**20
    return head + tail, f"{left_out:.0f} MiB in its middle were not read"
