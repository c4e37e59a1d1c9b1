"""Files of a job that are reports of a monitor, found by their content."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forewarn.features.diagnosis.file_content import FileContent
from forewarn.features.diagnosis.log_streams.job_streams import FileReading
from forewarn.pipelines.diagnosis.parts.captures import captures_elsewhere, name_in_job
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder

__all__ = ["PROGRESS_PARTS", "read_reports", "unread_reports"]

PROGRESS_PARTS = ("logs", "flight", "stacks", "metrics", "kernel")  # tell whether a job moves

_MAX_TOTAL_BYTES = 2**31
_MAX_NOTES = 5


def read_reports(
    folder: JobFolder, content: FileContent, max_total_bytes: int = _MAX_TOTAL_BYTES
) -> Iterator[tuple[str, str]]:
    """Yield name and text of the reports of a kind, by name.

    Parameters
    ----------
    folder : JobFolder
    content : str
    max_total_bytes : int
        Of a file larger than its share, only the lines at its end are read.
    """
    named = {name_in_job(folder, path): path for path in captures_elsewhere(folder, content)}
    max_bytes = max_total_bytes // max(len(named), 1)
    for name, path in sorted(named.items()):
        size = path.stat().st_size
        with path.open("rb") as stream:
            stream.seek(max(0, size - max_bytes))
            data = stream.read(max_bytes)
        yield (
            name,
            (data if size <= max_bytes else data[data.find(b"\n") + 1 :]).decode(
                "utf-8", "replace"
            ),
        )


def unread_reports(part: str, files: Sequence[FileReading]) -> Iterator[str]:
    """Yield a line for each file that was not read, and how many more there are."""
    unread = [f"{part}: {file.name} {file.why[0]}" for file in files if file.read_as is None]
    yield from unread[:_MAX_NOTES]
    if len(unread) > _MAX_NOTES:
        yield f"{part}: {len(unread) - _MAX_NOTES} more"
