"""The row groups of a file of records that can hold the GPUs of some slices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from forewarn.features.records.file_check import Columns
from forewarn.features.records.fleet_slices import MAX_SLICES, slice_ranges
from forewarn.pipelines.storage.records.parquet_files import ParquetSource
from forewarn.pipelines.storage.records.row_group_pruning import matching_row_groups

__all__ = ["FileSlice", "number_of_slices"]

Span = tuple[int | None, int | None]
_TARGET_ROWS_PER_SLICE = 1 << 21  # about 100 MiB while they are sorted
_MAX_ROWS_PER_SLICE = 1 << 24  # about 1 GiB; also for files that are not compacted
_MAX_READ_FACTOR = 2.0  # rows that may be read per existing row to allow smaller slices


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Row groups of a file (`RecordSource`).

    Of a compacted file they are those of the requested slices, of any other file those that can
    hold rows of the requested span.

    Attributes
    ----------
    source : ParquetSource
    groups : list of int or None
        The row groups; None means all.
    """

    source: ParquetSource
    groups: list[int] | None

    @classmethod
    def for_slices(
        cls, source: ParquetSource, slices: tuple[int, int], span: Span = (None, None)
    ) -> FileSlice:
        """Return the part of a file that can hold GPUs of the slices [first, last) in a span.

        Parameters
        ----------
        source : ParquetSource
        slices : tuple of (int, int)
        span : tuple of (int or None, int or None)
            Nanoseconds since 1970 UTC, half-open; None has no limit.
        """
        if source.form is None:
            return cls(source, matching_row_groups(source.metadata, source.schema, *span))
        return cls(source, None if slices == (0, MAX_SLICES) else source.form.row_groups(*slices))

    @property
    def name(self) -> str:
        """The path, for messages."""
        return self.source.name

    @property
    def n_rows(self) -> int:
        """Number of rows according to the metadata; some may be of other slices."""
        return self.source.rows_in(self.groups)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns, as written."""
        return self.source.schema

    def columns(self) -> AbstractContextManager[Columns]:
        """Open the columns, as `ParquetSource.columns` does."""
        return self.source.columns(self.groups)


def number_of_slices(sources: Sequence[ParquetSource]) -> int:
    """Return the best number of slices for reading these files: a power of two up to 64.

    More slices need less memory. A file that is not compacted is read once per slice, which limits
    the number; memory stays bounded nevertheless.
    """
    total, n_slices = sum(source.n_rows for source in sources), 1
    while n_slices < MAX_SLICES and n_slices * _TARGET_ROWS_PER_SLICE < total:
        few = n_slices * _MAX_ROWS_PER_SLICE >= total
        if few and _rows_read(sources, 2 * n_slices) > _MAX_READ_FACTOR * total:
            break
        n_slices *= 2
    return n_slices


def _rows_read(sources: Sequence[ParquetSource], n: int) -> int:
    """Return the number of rows read in total with n slices."""
    ranges = slice_ranges(n)
    return sum(
        FileSlice.for_slices(source, slices).n_rows for source in sources for slices in ranges
    )
