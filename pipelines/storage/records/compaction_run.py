"""Runs of `forewarn compact`: the dates to compact, and the result of each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.record_table import RecordsError
from forewarn.pipelines.runtime.executor import Executor
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.storage.files.file_lock import locked
from forewarn.pipelines.storage.files.location import Location, RemotePath
from forewarn.pipelines.storage.records.compaction import CompactedDate, compact_date
from forewarn.pipelines.storage.records.date_merge import MergeCounts
from forewarn.pipelines.storage.records.record_listing import list_records

__all__ = ["DateSpan", "compact_records", "compact_to_dict", "outcome_json", "outcome_text"]

_LOCK = ".compact.lock"
_Item = tuple[Location, dt.date, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class DateSpan:
    """The requested dates.

    Attributes
    ----------
    start, end : datetime.date or None
        Dates of [start, end); None is no limit.
    only : datetime.date or None
        This date only, even if it is the newest.
    """

    start: dt.date | None = None
    end: dt.date | None = None
    only: dt.date | None = None

    def holds(self, date: dt.date) -> bool:
        """Tell whether a date is requested."""
        if self.only is not None:
            return date == self.only
        return (self.start or dt.date.min) <= date < (self.end or dt.date.max)


def compact_records(
    folder: Location,
    span: DateSpan,
    today: dt.date,
    executor: Executor | None = None,
    names: ColumnNames = OUR_NAMES,
) -> Iterator[CompactedDate]:
    """Compact the dates of a folder of records, the oldest first; yield each result.

    Unfinished dates, and the newest date unless it was named, are left because rows may still land.

    Parameters
    ----------
    folder : Path or RemotePath
        RECORDS.
    span : DateSpan
    today : datetime.date
        In UTC.
    executor : Executor, optional
        Compacts several dates in parallel. Without it, or in an object store, whose keys stay in
        this process, dates are compacted one after another.
    names : ColumnNames, optional
        Names of the columns in the data, which they keep.

    Raises
    ------
    RecordsError
        If the folder holds no records of these dates, or a file cannot be read.
    JobError
        If workers cannot be started or crash repeatedly.
    """
    present = sorted({date for date, _ in list_records(folder)})
    chosen = [date for date in present if span.holds(date)]
    if not chosen:
        raise RecordsError(
            f"{folder}: no records of the requested dates, expected dates from {present[0]} "
            f"to {present[-1]}."
        )
    newest = None if span.only else present[-1]
    open_dates = [date for date in chosen if date >= today or date == newest]  # the last ones
    with _exclusive(folder), progress_bar(len(chosen), "compact", "date") as bar:
        items = [(folder, date, names.pairs) for date in chosen[: len(chosen) - len(open_dates)]]
        for outcome in _compact_all(folder, items, executor):
            yield outcome
            bar.update()
        for date in open_dates:
            newest_of_all = f"is the newest date (select it with --date {date})"
            yield CompactedDate.skipped(date, "is not over" if date >= today else newest_of_all)
            bar.update()


def _exclusive(folder: Location) -> AbstractContextManager[None]:
    """Return the lock for compacting a folder; an object store has no locks."""
    if isinstance(folder, RemotePath):
        return nullcontext()
    return locked(folder / _LOCK, "another compacting")


def _compact_all(
    folder: Location, items: Sequence[_Item], executor: Executor | None
) -> Iterator[CompactedDate]:
    if executor is None or isinstance(folder, RemotePath):
        yield from (compact_date(at, date, ColumnNames(pairs)) for at, date, pairs in items)
        return
    with executor.started() as slices:
        for fields in slices.map(compact_to_dict, items):
            counts = fields["counts"]
            merged = None if counts is None else MergeCounts(*counts)
            yield CompactedDate(**fields | {"counts": merged})


def compact_to_dict(item: _Item) -> dict[str, Any]:
    """Compact a date of a folder; return the fields of `CompactedDate` as plain values."""
    folder, date, pairs = item
    fields = asdict(compact_date(folder, date, ColumnNames(pairs)))
    return fields | {"counts": None if fields["counts"] is None else tuple(fields["counts"])}


def outcome_json(outcome: CompactedDate) -> dict[str, Any]:
    """Return the result of a date as a JSON value."""
    counts = outcome.counts
    return {
        "date": outcome.date.isoformat(),
        "state": outcome.state,
        "why": outcome.why,
        "files": outcome.files,
        "bytes_before": outcome.bytes_before,
        "bytes_after": outcome.bytes_after,
        "records": None if counts is None else counts.rows,
        "doubled": None if counts is None else counts.doubled,
        "row_groups": None if counts is None else counts.row_groups,
    }


def outcome_text(outcome: CompactedDate) -> str:
    """Describe the result of a date in one line."""
    if outcome.counts is None:
        return f"{outcome.date} {outcome.why or 'is already compact'}"
    n_files = "1 file" if outcome.files == 1 else f"{outcome.files:,} files"
    text = (
        f"{outcome.date} {outcome.counts.rows:,} records of {n_files} in "
        f"{outcome.counts.row_groups} row groups, {outcome.bytes_before / 2**20:,.1f} MiB are now "
        f"{outcome.bytes_after / 2**20:,.1f}"
    )
    doubled = outcome.counts.doubled
    return f"{text}; {doubled:,} duplicate rows dropped" if doubled else text
