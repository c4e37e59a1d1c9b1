"""Compaction: the files of each date become one file, safe against readers and kills.

The merged file is renamed into place, and only then are its source files deleted, sorted by name.
Until all are gone a row may exist twice, and the later name wins. A row's winning source file wins
until it is deleted; afterwards only the merged file has the row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.pipelines.storage.files.atomic_files import fsync
from forewarn.pipelines.storage.files.file_lock import has_landed, landing_locked
from forewarn.pipelines.storage.files.location import Location, RemotePath
from forewarn.pipelines.storage.files.stale_temporary_files import (
    remove_stale_files,
    scratch_folder,
    temporary_path,
)
from forewarn.pipelines.storage.records.compaction_metadata import (
    COMPACTED_NAME,
    CompactionMetadata,
    compacted_name,
    is_compacted_name,
)
from forewarn.pipelines.storage.records.consistent_read import ReplacedFileError, read_consistent
from forewarn.pipelines.storage.records.date_merge import MergeCounts, merge_date, stamp_of_source
from forewarn.pipelines.storage.records.merged_schema import IncompatibleSchemasError
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.records.record_listing import files_of_date

__all__ = ["CompactedDate", "compact_date"]


@dataclass(frozen=True, slots=True)
class CompactedDate:
    """The result of compacting one date.

    Attributes
    ----------
    date : datetime.date
    files, bytes_before, bytes_after : int
        Number and size of its files before, and its size afterwards.
    counts : MergeCounts or None
        None if the date was left unchanged.
    why : str
        Reason for leaving it; "" for a date that was already compact.
    """

    date: dt.date
    files: int
    bytes_before: int
    bytes_after: int
    counts: MergeCounts | None
    why: str = ""

    @classmethod
    def skipped(cls, date: dt.date, why: str) -> CompactedDate:
        """Return the result of a date that was not examined."""
        return cls(date, 0, 0, 0, None, why)

    @property
    def state(self) -> str:
        """One of "compacted", "compact" (it already was) and "left"."""
        if self.counts is not None:
            return "compacted"
        return "left" if self.why else "compact"


def compact_date(folder: Location, date: dt.date, names: ColumnNames = OUR_NAMES) -> CompactedDate:
    """Compact the files of a date; a compact date is left unchanged.

    Parameters
    ----------
    folder : Path or RemotePath
        RECORDS, of which no other process compacts a date at the same time.
    date : datetime.date
    names : ColumnNames, optional
        Names of the columns in the data, which they keep.

    Raises
    ------
    RecordsError
        If a file cannot be read, or is replaced at each attempt.
    """
    return read_consistent(lambda: _compact(folder, date, names))


def _compact(folder: Location, date: dt.date, names: ColumnNames) -> CompactedDate:
    """Compact the current files of a date.

    Raises
    ------
    ReplacedFileError
        If a file was replaced in the meantime; nothing has changed.
    """
    paths = files_of_date(folder, date)
    sources = [ParquetSource(path, names) for path in paths]
    before = sum(source.stamp.size for source in sources)
    merged = _already_merged(sources)
    if merged:
        with _landing_stopped(folder):
            _delete(merged)
        sources = [source for source in sources if source not in merged]
    if len(sources) == 1 and _form_of(sources[0]) is not None:
        return CompactedDate(date, len(paths), before, sources[0].stamp.size, None)
    try:
        counts, after = _replace(folder, sources, paths[0].parent)
    except IncompatibleSchemasError as error:
        return CompactedDate(date, len(paths), before, before, None, str(error))
    return CompactedDate(date, len(paths), before, after, counts)


def _form_of(source: ParquetSource) -> CompactionMetadata | None:
    metadata = source.metadata  # present if the row groups differ from the compaction metadata
    if not is_compacted_name(source.path.name):
        return None
    return source.form if metadata is None else CompactionMetadata.from_metadata(metadata.metadata)


def _already_merged(sources: Sequence[ParquetSource]) -> list[ParquetSource]:
    """Return the source files that a killed compaction had merged but not deleted."""
    by_stamp = {stamp_of_source(source): source for source in sources}
    forms = [form for source in sources if (form := _form_of(source))]
    merged = {stamp for form in forms for stamp in form.sources}
    return [source for stamp, source in by_stamp.items() if stamp in merged]


def _replace(
    folder: Location, sources: Sequence[ParquetSource], partition: Location
) -> tuple[MergeCounts, int]:
    """Replace files by one merged file; return its counts and its size."""
    if isinstance(partition, RemotePath):
        return _replace_objects(sources, partition)
    final = partition / COMPACTED_NAME
    remove_stale_files(final.parent)
    temporary = temporary_path(final)
    try:
        counts = merge_date(sources, temporary)
        fsync(temporary)  # its source files are deleted next
        size = temporary.stat().st_size
        with _landing_stopped(folder):
            _check_still(sources)
            temporary.replace(final)
            fsync(final.parent)
            _delete([source for source in sources if source.path != final])
    except FileNotFoundError as error:
        if error.filename == str(temporary):  # removed by a starting collector as a stale file
            raise ReplacedFileError(final) from None
        raise
    except OSError as error:
        if error.errno and error.filename is None:  # pyarrow's errors name no file
            error.filename = str(final)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return counts, size


def _replace_objects(
    sources: Sequence[ParquetSource], partition: RemotePath
) -> tuple[MergeCounts, int]:
    """Replace files in an object store: the merged file is built here and uploaded."""
    for left in partition.children():
        if is_compacted_name(left.name.removeprefix("_")) and left.name.endswith(".tmp"):
            left.unlink(missing_ok=True)
    final = partition / compacted_name([stamp_of_source(source) for source in sources])
    with scratch_folder() as scratch:
        local = scratch / COMPACTED_NAME
        counts = merge_date(sources, local)
        _check_still(sources)
        try:
            final.put(local)
        except FileNotFoundError:  # another compaction removed the upload as a stale file
            raise ReplacedFileError(final) from None
        size = local.stat().st_size
    _delete([source for source in sources if source.path != final])
    return counts, size


@contextmanager
def _landing_stopped(folder: Location) -> Iterator[None]:
    """Hold the landing lock, and check that the files are those that were read."""
    if isinstance(folder, Path) and has_landed(folder):
        with landing_locked(folder):
            yield
    else:
        yield


def _check_still(sources: Sequence[ParquetSource]) -> None:
    for source in sources:
        if not source.is_unchanged():
            raise ReplacedFileError(source.path)


def _delete(sources: Sequence[ParquetSource]) -> None:
    """Delete files sorted by name, so that no row loses to an older one meanwhile."""
    for source in sources:
        if not source.is_unchanged():
            raise ReplacedFileError(source.path)
        source.path.unlink(missing_ok=True)
