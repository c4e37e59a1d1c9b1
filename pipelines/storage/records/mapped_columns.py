"""Columns that a site names differently (`[records] columns`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa

from forewarn.features.records.column_names import ColumnNames
from forewarn.features.records.record_table import SERIAL, TIMESTAMP, RecordsError
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.parquet_files import ParquetSource, open_parquet

__all__ = ["check_names", "read_named", "with_our_names"]


def with_our_names(table: pa.Table, names: ColumnNames) -> pa.Table:
    """Return a table with our names of its columns."""
    return table.rename_columns(names.renamed(table.column_names)) if names.pairs else table


def read_named(path: Location, requested: Collection[str], names: ColumnNames) -> pa.Table:
    """Read those of the requested columns that a Parquet file has, by our names.

    Raises
    ------
    RecordsError
        If it is not a Parquet file.
    """
    file = open_parquet(path)
    theirs = file.schema_arrow.names
    pairs = zip(names.renamed(theirs), theirs, strict=True)
    chosen = {name: ours for ours, name in pairs if ours in requested}
    table = file.read(columns=list(chosen))
    return table.rename_columns([chosen[name] for name in table.column_names])


def check_names(sources: Sequence[ParquetSource]) -> None:
    """Reject files without a mapped key, and a mapped column that no file has.

    Raises
    ------
    RecordsError
        If the mapping names a column that is missing.
    """
    absent = [set(source.names.absent(source.names_in_file.values())) for source in sources]
    in_none = set.intersection(*absent) if absent else set()
    for source, pairs in zip(sources, absent, strict=True):
        for ours, theirs in sorted(pairs):
            if ours in (SERIAL, TIMESTAMP) or (ours, theirs) in in_none:
                columns = ", ".join(source.names_in_file.values())
                raise RecordsError(
                    f"{source.name}: column `{theirs}` is missing, which `records.columns` reads "
                    f"as `{ours}`; found {columns}."
                )
