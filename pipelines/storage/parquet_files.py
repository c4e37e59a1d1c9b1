"""Parquet files from outside: opened, or refused in one line that names the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.file_check import Columns
from forewarn.features.records.table import RecordsError
from forewarn.features.records.text_columns import is_text
from forewarn.pipelines.storage.regular_files import require_regular
from forewarn.pipelines.storage.replaced_files import (
    FileStamp,
    ReplacedFileError,
    read_until_still,
)

__all__ = [
    "ParquetSource",
    "check_memory",
    "open_parquet",
    "read_parquet",
    "work_on_columns",
]

_KEY_BYTES, _VALUE_BYTES = 32, 8  # a row takes at least so much while it is assembled
_Result = TypeVar("_Result")


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file, or say which one is none, or cannot be worked with."""
    require_regular(path, RecordsError)
    try:
        file = pq.ParquetFile(path, read_dictionary=[])
        names = file.schema_arrow.names
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        raise _no_parquet(path, error) from None
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise RecordsError(f"{path}: column `{doubled[0]}` comes twice, expected it once.")
    check_memory(path, file.metadata.num_rows, 0)
    return file


def read_parquet(path: Path) -> pa.Table:
    """Read a whole Parquet file, or say which one is none.

    Raises
    ------
    RecordsError
        If it is none, has a column twice, or does not fit into memory.
    """
    file = open_parquet(path)
    check_memory(path, file.metadata.num_rows, len(file.schema_arrow.names))
    try:
        table = file.read()
        table.validate(full=True)  # text that is not UTF-8 shows at this point
    except (pa.ArrowInvalid, OSError) as error:
        raise _no_parquet(path, error) from None
    return table


def check_memory(path: Path, n_rows: int, n_columns: int) -> None:
    """Refuse rows that memory cannot hold: a file of some kilobytes can claim a billion."""
    need, memory = n_rows * (_KEY_BYTES + _VALUE_BYTES * n_columns), _memory()
    if not 0 <= need <= memory:
        raise RecordsError(
            f"{path}: claims {n_rows:,} rows, which need {need / 2**30:,.1f} GiB, expected at most "
            f"the {memory / 2**30:,.1f} GiB of memory that there are."
        )


def _memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _no_parquet(path: Path, error: Exception) -> RecordsError:
    detail = (str(error).splitlines() or [type(error).__name__])[0]
    return RecordsError(f"{path}: is no whole Parquet file ({detail}).")


@dataclass(frozen=True, slots=True)
class _Head:
    """The metadata at the end of a file, and which file that was."""

    metadata: pq.FileMetaData
    stamp: FileStamp

    @classmethod
    def of(cls, path: Path) -> _Head:
        stamp = FileStamp.of(path)  # before the head: where that is of another file, it shows
        return cls(open_parquet(path).metadata, stamp)


class _FileColumns:
    """The columns of a file, each read when it is asked for.

    So it is still in the nearest cache when it is converted.
    """

    def __init__(self, path: Path, file: pq.ParquetFile, names: Sequence[str]) -> None:
        self._path, self._file = path, file
        self.column_names = list(names)

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        try:
            column = self._file.reader.read_column(self.column_names.index(name))
        except (pa.ArrowInvalid, OSError) as error:
            raise _no_parquet(self._path, error) from None
        if len(column) != len(self):
            raise RecordsError(
                f"{self._path}: is no whole Parquet file (column `{name}` has {len(column):,} of "
                f"the {len(self):,} rows that it claims)."
            )
        return column


class ParquetSource:
    """A file that may be opened several times and is one and the same each time.

    Its head is read once, by whoever needs it first.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known_head: _Head | None = None

    @property
    def _head(self) -> _Head:
        # Not a cached_property: in Python 3.11 that lets one thread at a time read any head.
        if self._known_head is None:
            self._known_head = _Head.of(self.path)
        return self._known_head

    @property
    def name(self) -> str:
        """The path, for messages."""
        return str(self.path)

    @property
    def n_rows(self) -> int:
        """The number of rows that the file claims."""
        return int(self._head.metadata.num_rows)

    @property
    def column_names(self) -> list[str]:
        """The names of all columns."""
        return list(self._schema.names)

    @property
    def _schema(self) -> pa.Schema:
        return self._head.metadata.schema.to_arrow_schema()

    @contextmanager
    def columns(self) -> Iterator[Columns]:
        """Open the columns; texts come as dictionaries.

        Raises
        ------
        RecordsError
            If it is no whole Parquet file.
        ReplacedFileError
            If another file has taken its name since the head was read.
        """
        head, schema = self._head, self._schema
        texts = [name for name in schema.names if is_text(schema.field(name).type)]
        try:
            # Not mapped into memory: a file that is cut while it is read would end the process.
            with pq.ParquetFile(self.path, metadata=head.metadata, read_dictionary=texts) as file:
                yield _FileColumns(self.path, file, schema.names)
        except (RecordsError, pa.ArrowInvalid, OSError) as error:
            if FileStamp.of(self.path) != head.stamp:
                raise ReplacedFileError(self.path) from None
            if isinstance(error, RecordsError):
                raise
            raise _no_parquet(self.path, error) from None
        if FileStamp.of(self.path) != head.stamp:
            raise ReplacedFileError(self.path)


def work_on_columns(path: Path, work: Callable[[Columns], _Result]) -> _Result:
    """Return what `work` makes of the columns of a file, of one and the same file.

    Raises
    ------
    RecordsError
        If it is no whole Parquet file.
    """

    def once() -> _Result:
        with ParquetSource(path).columns() as columns:
            return work(columns)

    return read_until_still(once)
