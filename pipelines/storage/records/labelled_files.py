"""Whether the files of records say which GPUs failed."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.features.records.record_table import FAILURE, RecordsError
from forewarn.pipelines.storage.records.parquet_files import ParquetSource

__all__ = ["check_labels"]


def check_labels(sources: Sequence[ParquetSource]) -> None:
    """Refuse a data set of which only some files say what failed."""
    without = [source for source in sources if FAILURE not in source.column_names]
    if without and len(without) < len(sources):
        raise RecordsError(
            f"{without[0].path}: column `{FAILURE}` is missing, other files have it."
        )
