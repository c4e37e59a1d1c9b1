"""Dumps, stacks and reports in a job's folder: in their own folders, or under any name."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from forewarn.features.diagnosis.file_content import HEAD_BYTES, FileContent, file_content
from forewarn.pipelines.diagnosis.parts.job_folder import PARTS, JobFolder, JobFolderError
from forewarn.pipelines.storage.files.regular_files import files_below, matching_paths

__all__ = ["captures_elsewhere", "is_capture", "name_in_job"]

_OTHER_PARTS = frozenset(PARTS.values()) - {"logs"}  # whose files have one form


def captures_elsewhere(folder: JobFolder, content: FileContent) -> Iterator[Path]:
    """Yield the files outside the folders of other parts that have a content.

    Parameters
    ----------
    folder : JobFolder
    content : str
        Kind of content.
    """
    if not folder.contents:
        is_file = folder.path.is_file()
        paths = [folder.path] if is_file else _files_elsewhere(folder.path)
        folder.contents.update((p, _content(p)) for p in paths if is_file or not p.is_symlink())
    yield from (path for path, kind in folder.contents.items() if kind == content)


def _files_elsewhere(folder: Path) -> Iterator[Path]:
    """Yield the files outside the folders of other parts, which may have very many."""
    for entry in matching_paths(folder, "[!.]*", JobFolderError):
        if entry.is_dir() and not entry.is_symlink() and entry.name not in _OTHER_PARTS:
            yield from files_below(entry, JobFolderError)
        elif entry.is_file() and entry.name not in _OTHER_PARTS:
            yield entry


def is_capture(folder: JobFolder, path: Path) -> bool:
    """Return whether a part other than the logs reads a file by its content."""
    content = folder.contents[path] if path in folder.contents else _content(path)
    return content not in (None, "native stacks")


def name_in_job(folder: JobFolder, path: Path) -> str:
    """Return the path of a file below the job's folder."""
    return path.name if path == folder.path else path.relative_to(folder.path).as_posix()


def _content(path: Path) -> FileContent | None:
    """Return what a file contains; a job that is watched is read again and again."""
    stat = path.stat()
    return _content_as_of(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=2**14)
def _content_as_of(path: Path, _size: int, _changed_at: int) -> FileContent | None:
    with path.open("rb") as stream:
        return file_content(stream.read(HEAD_BYTES))
