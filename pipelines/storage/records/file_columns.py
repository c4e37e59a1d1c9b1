"""Columns of a Parquet file of records, or of some of its row groups."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.record_table import RecordsError
from forewarn.pipelines.storage.files.location import Location

__all__ = ["READ_ERRORS", "FileColumns", "not_parquet_error", "rows_of_each_group"]

READ_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError)
"""Errors of pyarrow for a corrupt file; a flipped bit can name an unknown type."""

_UNREADABLE = {
    PermissionError: "Permission denied",
    FileNotFoundError: "No such file or directory",
}


def not_parquet_error(path: Location, error: Exception) -> RecordsError:
    """Return the error for a file that is not a readable Parquet file."""
    for kind, reason in _UNREADABLE.items():
        if isinstance(error, kind):
            return RecordsError(f"{path}: cannot be read ({reason}).")
    detail = (str(error).splitlines() or [type(error).__name__])[0]
    return RecordsError(f"{path}: is not a complete Parquet file ({detail}).")


class FileColumns:
    """The columns of a file, each read on access.

    A column is then still in the CPU cache when it is converted.

    Parameters
    ----------
    path : Path or RemotePath
    file : ParquetFile
    schema : Schema
    n_rows : int
        Number of rows according to the metadata.
    row_groups : sequence of int, optional
        Only these row groups.
    lock : Lock, optional
        Held while row groups are read; shared by all readers of the file.
    """

    def __init__(
        self,
        path: Location,
        file: pq.ParquetFile,
        schema: pa.Schema,
        n_rows: int,
        row_groups: Sequence[int] | None = None,
        lock: Lock | None = None,
    ) -> None:
        self._path, self._file, self._groups = path, file, row_groups
        self._lock = lock or Lock()
        self._schema, self.column_names = schema, list(schema.names)
        self._n_rows = n_rows

    def __len__(self) -> int:
        return self._n_rows

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        try:
            column = self._read(self.column_names.index(name))
        except READ_ERRORS as error:
            raise not_parquet_error(self._path, error) from None
        if len(column) != len(self):
            raise RecordsError(
                f"{self._path}: is not a complete Parquet file (`{name}` has {len(column):,} "
                f"of {len(self):,} rows)."
            )
        return column

    def _read(self, number: int) -> pa.ChunkedArray:
        if self._groups is None:
            return self._file.reader.read_column(number)
        if not self._groups:
            return pa.chunked_array([], self._schema.field(number).type)
        with self._lock:  # two threads in one reader can crash the process
            table = self._file.reader.read_row_groups(self._groups, [number], use_threads=False)
        return table.column(0)


def rows_of_each_group(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """Return the number of rows of each row group, according to the metadata."""
    groups = range(metadata.num_row_groups)
    return tuple(int(metadata.row_group(number).num_rows) for number in groups)
