"""Untrusted Parquet files: opened, or rejected with a one-line message."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.records.column_names import OUR_NAMES, ColumnNames
from forewarn.features.records.file_check import Columns
from forewarn.features.records.record_table import RecordsError
from forewarn.features.records.text_columns import is_text
from forewarn.pipelines.storage.files.file_names import arrow_path
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.files.regular_files import require_regular
from forewarn.pipelines.storage.records.compaction_metadata import (
    CompactionMetadata,
    is_compacted_name,
)
from forewarn.pipelines.storage.records.consistent_read import (
    FileStamp,
    ReplacedFileError,
    read_consistent,
)
from forewarn.pipelines.storage.records.file_columns import (
    READ_ERRORS,
    FileColumns,
    not_parquet_error,
    rows_of_each_group,
)

__all__ = [
    "ParquetSource",
    "check_memory",
    "map_parts",
    "open_parquet",
    "read_columns",
    "read_parquet",
]

_KEY_BYTES, _VALUE_BYTES = 32, 8  # lower bounds of the memory of a row during assembly
_Result = TypeVar("_Result")


def open_parquet(path: Location) -> pq.ParquetFile:
    """Open a Parquet file; an error names the file."""
    if isinstance(path, Path):
        require_regular(path, RecordsError)
    try:
        # Extension types are read as their storage type: a UUID or JSON is ordinary text.
        file = pq.ParquetFile(_content(path), read_dictionary=[], arrow_extensions_enabled=False)
        names, rows = file.schema_arrow.names, rows_of_each_group(file.metadata)
    except (*READ_ERRORS, UnicodeDecodeError) as error:
        raise not_parquet_error(path, error) from None
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise RecordsError(f"{path}: column `{doubled[0]}` occurs twice, expected once.")
    if sum(rows) != file.metadata.num_rows or min(rows, default=0) < 0:
        raise RecordsError(
            f"{path}: is not a complete Parquet file (it has {file.metadata.num_rows:,} rows, its "
            f"row groups have {sum(rows):,})."
        )
    check_memory(path, file.metadata.num_rows, 0)
    return file


def _content(path: Location) -> Any:
    """Return the object that pyarrow opens."""
    return arrow_path(path) if isinstance(path, Path) else path.opened()


def read_parquet(path: Location) -> pa.Table:
    """Read a whole Parquet file.

    Raises
    ------
    RecordsError
        If it is not a Parquet file, has a duplicate column, or does not fit into memory.
    """
    file = open_parquet(path)
    check_memory(path, file.metadata.num_rows, len(file.schema_arrow.names))
    try:
        table = file.read()
        table.validate(full=True)  # finds text that is not UTF-8
    except READ_ERRORS as error:
        raise not_parquet_error(path, error) from None
    return table


def read_columns(
    path: Path,
    columns: Mapping[str, pa.DataType],
    content: str,
    *,
    optional: Collection[str] = (),
) -> pa.Table:
    """Read some columns of a Parquet file in the given types.

    Parameters
    ----------
    path : Path
    columns : mapping of str to DataType
    content : str
        Expected content of the file, for messages.
    optional : collection of str
        Columns that are null if the file lacks them.

    Raises
    ------
    RecordsError
        If it is not a Parquet file, lacks a column, or a column cannot be cast.
    """
    try:
        rows = open_parquet(path).read(columns=list(columns))
        for name in set(optional) - set(rows.column_names):
            rows = rows.append_column(name, pa.nulls(len(rows), columns[name]))
        return rows.select(list(columns)).cast(pa.schema(list(columns.items())))
    except (RecordsError, pa.ArrowException, KeyError, OSError) as error:
        detail = (str(error).splitlines() or [""])[0][:100]
        raise RecordsError(f"{path}: cannot be used as {content} ({detail}).") from None


def check_memory(path: Location, n_rows: int, n_columns: int) -> None:
    """Reject more rows than memory can hold; a file of some kilobytes can claim a billion."""
    need, memory = n_rows * (_KEY_BYTES + _VALUE_BYTES * n_columns), _memory_bytes()
    if not 0 <= need <= memory:
        raise RecordsError(
            f"{path}: claims {n_rows:,} rows, which need {need / 2**30:,.1f} GiB, expected at most "
            f"the {memory / 2**30:,.1f} GiB of memory of this machine."
        )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True, slots=True)
class _FileHead:
    """The metadata of a file, and the stamp of the file they were read from.

    Metadata of a compacted file are dropped until its columns are read, since its many row groups
    take a megabyte.
    """

    schema: pa.Schema
    rows_of_groups: tuple[int, ...]
    stamp: FileStamp
    form: CompactionMetadata | None
    metadata: pq.FileMetaData | None

    @classmethod
    def read(cls, path: Location) -> _FileHead:
        # The stamp is taken before the metadata, so that a replacement is detected.
        stamp = FileStamp.from_path_if_exists(path)
        try:
            file = open_parquet(path)
        except (RecordsError, OSError):
            if (
                FileStamp.from_path_if_exists(path) is None
            ):  # compacted or removed after the listing
                raise ReplacedFileError(path, missing=True) from None
            raise
        if stamp is None:
            raise ReplacedFileError(path, missing=True)
        # Its own schema has a reference cycle to the metadata, which would keep them in memory.
        metadata, form = file.metadata, _form(path, file.metadata)
        rows = rows_of_each_group(metadata)
        return cls(file.schema_arrow, rows, stamp, form, None if form else metadata)

    @property
    def texts(self) -> list[str]:
        """The text columns."""
        return [name for name in self.schema.names if is_text(self.schema.field(name).type)]


def _form(path: Location, metadata: pq.FileMetaData) -> CompactionMetadata | None:
    if not is_compacted_name(path.name):
        return None
    form = CompactionMetadata.from_metadata(metadata.metadata)
    return form if form and len(form.slices) == metadata.num_row_groups else None


class ParquetSource:
    """A file that may be opened several times and must be the same each time.

    Its metadata are read once, on first use.

    Parameters
    ----------
    path : Path or RemotePath
    names : ColumnNames, optional
        Names of the columns in the file; all others here are ours.

    Attributes
    ----------
    path : Path or RemotePath
    names : ColumnNames
    stays_open : bool
        Keep the file open after its columns were read without an error. It can then be read even if
        it is replaced or removed. False by default.
    """

    def __init__(self, path: Location, names: ColumnNames = OUR_NAMES) -> None:
        self.path, self.names = path, names
        self.stays_open = False
        self._known_head: _FileHead | None = None
        self._open: pq.ParquetFile | None = None
        self._lock = Lock()

    @property
    def _head(self) -> _FileHead:
        # Not a cached_property: in Python 3.11 its lock is shared by all instances.
        if self._known_head is None:
            self._known_head = _FileHead.read(self.path)
        return self._known_head

    @property
    def name(self) -> str:
        """The path, for messages."""
        return str(self.path)

    @property
    def n_rows(self) -> int:
        """Number of rows according to the metadata."""
        return self.rows_in(None)

    @property
    def rows_of_groups(self) -> tuple[int, ...]:
        """Number of rows of each row group according to the metadata."""
        return self._head.rows_of_groups

    def rows_in(self, row_groups: Sequence[int] | None) -> int:
        """Return the number of rows of some row groups; None means all."""
        rows = self.rows_of_groups
        return sum(rows if row_groups is None else [rows[group] for group in row_groups])

    @property
    def column_names(self) -> list[str]:
        """The names of all columns."""
        return self.names.renamed(self._head.schema.names)

    @property
    def names_in_file(self) -> dict[str, str]:
        """The name of each column in the file."""
        return dict(zip(self.column_names, self._head.schema.names, strict=True))

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns, as written."""
        schema = self._head.schema
        fields = [schema.field(n).with_name(name) for n, name in enumerate(self.column_names)]
        return pa.schema(fields, schema.metadata) if self.names.pairs else schema

    @property
    def stamp(self) -> FileStamp:
        """The stamp of the file."""
        return self._head.stamp

    @property
    def metadata(self) -> pq.FileMetaData | None:
        """The file's metadata; None for a compacted file whose columns were not opened."""
        return self._head.metadata

    @property
    def form(self) -> CompactionMetadata | None:
        """The compaction metadata, if the file is compacted."""
        return self._head.form

    def hold(self) -> None:
        """Open the file now and keep it open."""
        self.stays_open = True
        with self.opened():
            pass

    def is_unchanged(self) -> bool:
        """Tell whether the path still refers to the file whose metadata were read."""
        return FileStamp.from_path_if_exists(self.path) == self.stamp

    @contextmanager
    def opened(self) -> Iterator[pq.ParquetFile]:
        """Open the file; texts are read as dictionaries.

        Raises
        ------
        RecordsError
            If it is corrupt or not a Parquet file.
        ReplacedFileError
            If the file was replaced or changed after its metadata were read.
        """
        head, held = self._head, self._open
        try:
            file = held or self._opened(head)
            yield file
        except (RecordsError, *READ_ERRORS) as error:
            self._open = None
            if not self.is_unchanged():
                raise ReplacedFileError(self.path) from None
            if isinstance(error, RecordsError):
                raise
            raise not_parquet_error(self.path, error) from None
        stamp = FileStamp.from_path_if_exists(self.path)
        # An open file is unaffected by a replacement.
        if stamp != head.stamp and (held is None or head.stamp.is_of_same_file(stamp)):
            raise ReplacedFileError(self.path)
        if self.stays_open:
            self._open = file
        else:
            file.close()

    def _opened(self, head: _FileHead) -> pq.ParquetFile:
        # Not memory-mapped: truncating the file during a read would kill the process.
        options = {"read_dictionary": head.texts, "arrow_extensions_enabled": False}
        try:
            file = pq.ParquetFile(_content(self.path), metadata=head.metadata, **options)
        except KeyError:  # the column no longer exists
            raise ReplacedFileError(self.path) from None
        if head.metadata is None:
            if not self.is_unchanged():  # the new file may have fewer rows
                raise ReplacedFileError(self.path)
            self._known_head = replace(head, metadata=file.metadata)
        return file

    @contextmanager
    def columns(self, row_groups: Sequence[int] | None = None) -> Iterator[Columns]:
        """Open the columns of all or some row groups, as `opened`."""
        with self.opened() as file:
            n_rows = self.rows_in(row_groups)
            yield FileColumns(self.path, file, self.schema, n_rows, row_groups, self._lock)


def map_parts(
    path: Location,
    work: Callable[[Columns], _Result],
    n_rows: int,
    names: ColumnNames = OUR_NAMES,
) -> list[_Result]:
    """Apply `work` to the columns of each part of a file; all parts are of the same file.

    A part holds all rows of some GPUs. Parts of a compacted file are row groups with at least
    `n_rows` rows; any other file is one part.

    Raises
    ------
    RecordsError
        If it is corrupt or not a Parquet file.
    """

    def once() -> list[_Result]:
        source = ParquetSource(path, names)
        form = source.form
        parts = [None] if form is None else form.parts(source.rows_of_groups, n_rows)
        return [_work(source, work, groups) for groups in parts]

    return read_consistent(once)


def _work(
    source: ParquetSource, work: Callable[[Columns], _Result], groups: list[int] | None
) -> _Result:
    with source.columns(groups) as columns:
        return work(columns)
