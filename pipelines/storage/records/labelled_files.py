"""A check that all files of records, or none, have the column of failures."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.features.records.record_table import FAILURE, RecordsError
from forewarn.pipelines.storage.records.parquet_files import ParquetSource

__all__ = ["check_labels"]


def check_labels(sources: Sequence[ParquetSource]) -> None:
    """Reject a data set of which only some files have a column of failures."""
    without = [source for source in sources if FAILURE not in source.column_names]
    if without and len(without) < len(sources):
        raise RecordsError(
            f"{without[0].path}: column `{FAILURE}` is missing, but other files have it."
        )
