"""Folder of a job and its parts."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from forewarn.features.diagnosis.file_content import FileContent
from forewarn.features.diagnosis.ranks import Ranks, parse_ranks
from forewarn.features.diagnosis.unseen_outputs import UnseenOutput, parse_unseen
from forewarn.features.errors import InputError
from forewarn.pipelines.diagnosis.parts.job_archive import unpacked
from forewarn.pipelines.storage.files.regular_files import matching_paths, require_regular

__all__ = ["PARTS", "UNSEEN", "JobFolder", "JobFolderError", "read_text"]

# Paths of the parts, by the names that `blind` and evidence use.
PARTS = {
    "ranks": "ranks.csv",
    "exits": "exits.csv",
    "logs": "logs",
    "flight": "flight",
    "stacks": "stacks",
    "metrics": "metrics",
    "kernel": "kernel",
    "profiles": "profiles",
}
UNSEEN = "unseen_output"  # tables of output that was not collected, one a machine; no evidence
_MAX_TABLE_BYTES = 256 * 2**20


class JobFolderError(InputError):
    """A path that is not a job."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job: a folder with parts, a folder of any logs, a single log, or an unpacked archive.

    Attributes
    ----------
    path : Path
        Folder or log.
    patterns : tuple of Path
        The site's changes of the knowledge base.
    name : str
        Name of the job.
    present : frozenset of str
        Names of the parts that exist.
    contents : dict of Path to (str or None)
        What files outside the folders of other parts contain, once a part has asked.
    """

    path: Path
    patterns: tuple[Path, ...] = ()
    name: str = ""
    present: frozenset[str] = frozenset()
    contents: dict[Path, FileContent | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    @contextmanager
    def open(cls, path: Path, patterns: Sequence[Path] = ()) -> Iterator[JobFolder]:
        """Open a job; the files of an archive exist until the context ends.

        Raises
        ------
        JobFolderError
            If it does not exist or contains no file.
        ArchiveError
            If an archive cannot be read.
        """
        name = path.resolve().name
        if path.is_file() and tarfile.is_tarfile(path):
            with unpacked(path) as folder:
                yield _open_folder(_only_folder(folder), patterns, name.partition(".t")[0])
        elif path.is_file():
            yield cls(path, tuple(patterns), name)
        else:
            yield _open_folder(path, patterns, name)

    def part(self, name: str) -> Path | None:
        """Return the path of a part, or None if it is absent."""
        return self.path / PARTS[name] if name in self.present else None

    def ranks(self) -> Ranks:
        """Read `ranks.csv`; without it, return an empty table that is not `listed`."""
        path = self.part("ranks")
        return Ranks({}, listed=False) if path is None else parse_ranks(read_text(path), str(path))

    def unseen(self) -> tuple[UnseenOutput, ...]:
        """Read the tables of output that was not collected; empty without them."""
        if self.path.is_file():
            return ()
        paths = matching_paths(self.path / UNSEEN, "*.csv", JobFolderError)
        return tuple(row for path in paths for row in parse_unseen(read_text(path), str(path)))


def _open_folder(path: Path, patterns: Sequence[Path], name: str) -> JobFolder:
    if not path.is_dir():
        raise JobFolderError(f"{path}: does not exist, expected the folder or a log of a job.")
    if not any(file.is_file() for file in path.rglob("*")):
        raise JobFolderError(
            f"{path}: contains no file of a job, expected logs or at least one of "
            f"{', '.join(PARTS.values())}."
        )
    present = frozenset(part for part, below in PARTS.items() if (path / below).exists())
    return JobFolder(path, tuple(patterns), name, present)


def _only_folder(folder: Path) -> Path:
    """Return the only folder in a folder, as archives often have one, or the folder itself."""
    inside = list(folder.iterdir())
    is_wrapped = len(inside) == 1 and inside[0].is_dir() and inside[0].name not in PARTS.values()
    return inside[0] if is_wrapped else folder


def read_text(path: Path) -> str:
    """Read a table as UTF-8.

    Raises
    ------
    JobFolderError
        If the path is not a regular file, is too large, or is not text.
    """
    require_regular(path)
    if path.stat().st_size > _MAX_TABLE_BYTES:
        raise JobFolderError(f"{path}: is larger than {_MAX_TABLE_BYTES} bytes, expected a table.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobFolderError(
            f"{path}: byte {error.start} is not valid UTF-8, expected a text table."
        ) from None
