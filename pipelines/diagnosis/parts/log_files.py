"""Files with a job's logs, read in bounded memory."""

from __future__ import annotations

import gzip
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from forewarn.features.diagnosis.log_streams.container_files import continued_file
from forewarn.pipelines.diagnosis.parts.captures import is_capture, name_in_job
from forewarn.pipelines.diagnosis.parts.job_folder import PARTS, UNSEEN, JobFolder, JobFolderError
from forewarn.pipelines.storage.files.regular_files import files_below

__all__ = ["log_files", "read_bounded", "read_end"]

_MAX_TOTAL_BYTES = 2**31
_MAX_FILE_BYTES = 2**28
_MAX_UNPACKED_BYTES = 2**30
_END_BYTES = 2**16
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
    files = [(name_in_job(folder, path), path) for path in paths if not is_capture(folder, path)]
    return sorted(files, key=lambda file: _order(file[0]))


def _order(name: str) -> tuple[str, bool, str]:
    """Return what sorts files by name, and the start of a rotated log before its end."""
    whole = continued_file(name)
    return whole, name == whole, name


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
    if path.suffix == ".gz":
        return _unpacked(path, limit)
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size <= limit:
            return stream.read(size), ""  # a larger limit would be allocated first
        head = stream.read(_HEAD_BYTES)
        head = head[: head.rfind(b"\n") + 1]
        stream.seek(size - (limit - _HEAD_BYTES))
        cut_line = stream.readline(_HEAD_BYTES)  # a slice of the rest would be a copy of it
        tail = stream.read(limit - _HEAD_BYTES - len(cut_line))
    return head + tail, _left_out(size - len(head) - len(tail))


def _without_middle(head: bytes, tail: bytes, size: int) -> tuple[bytes, str]:
    head, tail = head[: head.rfind(b"\n") + 1], tail[tail.find(b"\n") + 1 :]
    return head + tail, _left_out(size - len(head) - len(tail))


def _left_out(size: int) -> str:
    return f"{size / 2**20:.0f} MiB in its middle were not read"


def _unpacked(path: Path, limit: int) -> tuple[bytes, str]:
    """Return the text of a compressed file in bounded memory and time, and what was left out."""
    with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as stream:
        head, size, why = b"", 0, ""
        tail: deque[bytes] = deque(maxlen=limit // _HEAD_BYTES - 1)
        try:
            head = stream.read(_HEAD_BYTES)
            size = len(head)
            while size < _MAX_UNPACKED_BYTES and (part := stream.read(_HEAD_BYTES)):
                size += len(part)
                tail.append(part)
        except (OSError, EOFError, zlib.error):
            why = "it is damaged, or no gzip file"
    if size >= _MAX_UNPACKED_BYTES:
        why = f"only its first {size // 2**20} MiB were read"
    end = b"".join(tail)
    if len(head) + len(end) == size:
        return head + end, why
    text, left_out = _without_middle(head, end, size)
    return text, why or left_out


def read_end(path: Path) -> bytes:
    """Return the last 64 KiB of a file's text."""
    if path.suffix == ".gz":
        return _unpacked(path, 2 * _HEAD_BYTES)[0][-_END_BYTES:]
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - _END_BYTES))
        return stream.read(_END_BYTES)
