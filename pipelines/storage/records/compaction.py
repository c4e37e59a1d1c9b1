"""Compacting: each date of a folder of records as one file, whoever reads or is killed meanwhile.

The merged file takes its name whole, and only then are the files that it was made of deleted, in
the order of their names. Until all are gone a row may be there twice. The later name wins: as
long as the file whose row won before is there, it wins still, and after that only the merged file
has the row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
    """What became of one date.

    Attributes
    ----------
    date : datetime.date
    files, bytes_before, bytes_after : int
        Of it before, and bytes afterwards.
    counts : MergeCounts or None
        None where it was left as it is.
    why : str
        Why it was left; "" for a date that was compact already.
    """

    date: dt.date
    files: int
    bytes_before: int
    bytes_after: int
    counts: MergeCounts | None
    why: str = ""

    @classmethod
    def skipped(cls, date: dt.date, why: str) -> CompactedDate:
        """Return a date that was not looked at."""
        return cls(date, 0, 0, 0, None, why)

    @property
    def state(self) -> str:
        """One of "compacted", "compact" (it was already) and "left"."""
        if self.counts is not None:
            return "compacted"
        return "left" if self.why else "compact"


def compact_date(folder: Location, date: dt.date) -> CompactedDate:
    """Make one file of the files of a date; a date that is one already stays as it is.

    Parameters
    ----------
    folder : Path or RemotePath
        RECORDS, of which no other process compacts a date meanwhile.
    date : datetime.date

    Raises
    ------
    RecordsError
        If a file cannot be read, or one is replaced at each try.
    """
    return read_consistent(lambda: _compact(folder, date))


def _compact(folder: Location, date: dt.date) -> CompactedDate:
    """Make one file of those that are there now.

    Raises
    ------
    ReplacedFileError
        If a file is replaced meanwhile: nothing has changed.
    """
    paths = files_of_date(folder, date)
    sources = [ParquetSource(path) for path in paths]
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
    metadata = source.metadata  # there where the row groups are others than the form says
    if not is_compacted_name(source.path.name):
        return None
    return source.form if metadata is None else CompactionMetadata.from_metadata(metadata.metadata)


def _already_merged(sources: Sequence[ParquetSource]) -> list[ParquetSource]:
    """Return the files that a compacting which was killed had merged and not yet deleted."""
    by_stamp = {stamp_of_source(source): source for source in sources}
    forms = [form for source in sources if (form := _form_of(source))]
    merged = {stamp for form in forms for stamp in form.sources}
    return [source for stamp, source in by_stamp.items() if stamp in merged]


def _replace(
    folder: Location, sources: Sequence[ParquetSource], partition: Location
) -> tuple[MergeCounts, int]:
    """Put one merged file in the place of others; return its counts and its size."""
    if isinstance(partition, RemotePath):
        return _replace_objects(sources, partition)
    final = partition / COMPACTED_NAME
    remove_stale_files(final.parent)
    temporary = temporary_path(final)
    try:
        counts = merge_date(sources, temporary)
        fsync(temporary)  # what was there before is deleted next
        size = temporary.stat().st_size
        with _landing_stopped(folder):
            _check_still(sources)
            temporary.replace(final)
            fsync(final.parent)
            _delete([source for source in sources if source.path != final])
    except FileNotFoundError as error:
        if error.filename == str(temporary):  # a collector that starts sweeps what is unfinished
            raise ReplacedFileError(final) from None
        raise
    except OSError as error:
        if error.errno and error.filename is None:  # pyarrow names no file
            error.filename = str(final)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return counts, size


def _replace_objects(
    sources: Sequence[ParquetSource], partition: RemotePath
) -> tuple[MergeCounts, int]:
    """Do the same in an object store: the merged file is made here and sent as a whole."""
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
        except FileNotFoundError:  # another compacting took what was being sent for a leftover
            raise ReplacedFileError(final) from None
        size = local.stat().st_size
    _delete([source for source in sources if source.path != final])
    return counts, size


@contextmanager
def _landing_stopped(folder: Location) -> Iterator[None]:
    """Let no row land meanwhile: a file is deleted only as long as it is the one that was read."""
    if isinstance(folder, Path) and has_landed(folder):
        with landing_locked(folder):
            yield
    else:
        yield


def _check_still(sources: Sequence[ParquetSource]) -> None:
    for source in sources:
        if not source.is_still():
            raise ReplacedFileError(source.path)


def _delete(sources: Sequence[ParquetSource]) -> None:
    """Delete files in the order of their names: so no row loses to an older one on the way."""
    for source in sources:
        if not source.is_still():
            raise ReplacedFileError(source.path)
        source.path.unlink(missing_ok=True)
