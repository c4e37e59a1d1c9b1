"""Reads files of samples, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.errors import InputError
from forewarn.features.records.text_columns import is_text
from forewarn.features.records.timestamp_columns import as_nanoseconds
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["GROUP", "MACHINE", "TIME", "PullError", "open_samples", "read_keys", "read_metric"]

TIME, MACHINE, GROUP = "timestamp", "machine", "group"


class PullError(InputError):
    """Machine metrics that violate the format."""


def open_samples(path: Path) -> pq.ParquetFile:
    """Open a file of samples.

    Raises
    ------
    PullError
        If it is not readable Parquet, or lacks `timestamp` or `machine`.
    """
    if not path.is_file():  # opening a FIFO would block forever
        raise PullError(f"{path}: is not a regular file, expected Parquet.")
    try:
        schema = pq.read_schema(arrow_path(path))
        texts = [name for name in (MACHINE, GROUP) if name in schema.names]
        texts = [name for name in texts if is_text(schema.field(name).type)]
        file = pq.ParquetFile(arrow_path(path), read_dictionary=texts)
    except (pa.ArrowException, OSError) as error:
        raise PullError(f"{path}: cannot be read as Parquet ({_first_line(error)}).") from None
    names = schema.names
    for name in (TIME, MACHINE):
        if name not in names:
            raise PullError(f"{path}: column `{name}` is missing, found {', '.join(names[:8])}.")
    return file


def _read(path: Path, file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    for name in columns:
        if file.schema_arrow.names.count(name) > 1:
            raise PullError(f"{path}: column `{name}` occurs twice, expected it once.")
    try:
        table = file.read(columns=list(columns), use_threads=True)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise PullError(f"{path}: cannot be read ({_first_line(error)}).") from None
    if table.num_rows != file.metadata.num_rows:  # compiled loops rely on these lengths
        raise PullError(
            f"{path}: holds {table.num_rows} rows, expected {file.metadata.num_rows} as its footer "
            "says."
        )
    return table


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def read_keys(path: Path, file: pq.ParquetFile) -> pa.Table:
    """Return time, machine and group of a file's rows, in canonical types.

    Raises
    ------
    PullError
        If a column cannot be read or has another type.
    """
    has_group = GROUP in file.schema_arrow.names
    table = _read(path, file, [TIME, MACHINE, *([GROUP] if has_group else [])])
    if not pa.types.is_timestamp(table[TIME].type):
        kind = table[TIME].type
        raise PullError(f"{path}: column `{TIME}` is {kind}, expected a timestamp.")
    group = table[GROUP] if has_group else pa.nulls(len(table), pa.string())
    texts = {}
    for name, column in ((MACHINE, table[MACHINE]), (GROUP, group)):
        if not (is_text(column.type) or pa.types.is_null(column.type)):
            raise PullError(f"{path}: column `{name}` is {column.type}, expected a string.")
        texts[name] = _as_dictionary(column)
    return pa.table({TIME: as_nanoseconds(table[TIME]), **texts})


def _as_dictionary(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    dictionary = pa.dictionary(pa.int32(), pa.string())
    if pa.types.is_dictionary(column.type):
        return column.cast(dictionary)
    return pa.chunked_array(column.cast(pa.string())).dictionary_encode().cast(dictionary)


def read_metric(path: Path, file: pq.ParquetFile, name: str) -> npt.NDArray[np.floating[Any]]:
    """Return a metric of one file at full precision; NaN where it is missing.

    Raises
    ------
    PullError
        If the column cannot be read or is not numeric.
    """
    if name not in file.schema_arrow.names:
        return np.full(file.metadata.num_rows, np.nan, dtype=np.float32)
    column = _read(path, file, [name])[name]
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise PullError(f"{path}: column `{name}` is {kind}, expected numbers.")
    if column.null_count or not pa.types.is_floating(kind):
        # Above 2^53 the last digits are lost; the increase of such a counter does not need them.
        column = pc.fill_null(column.cast(pa.float64(), safe=False), float("nan"))
    values: npt.NDArray[np.floating[Any]] = column.to_numpy()
    return values
