"""The store: Parquet partitions by date, read in parallel and written atomically."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.records.assembly import RecordsBuilder
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.file_check import (
    Columns,
    Keys,
    States,
    Values,
    check_keys,
    check_values,
    is_text,
    moments,
    plain_text,
)
from forewarn.features.records.table import (
    DAY,
    FAILURE,
    MACHINE,
    SERIAL,
    SLOT,
    FeatureKinds,
    Records,
    RecordsError,
)
from forewarn.features.threads import in_threads, n_threads
from forewarn.pipelines.storage.leftovers import remove_leftovers, temporary_beside

__all__ = [
    "RecordStore",
    "check_regular",
    "moments_of",
    "of_columns",
    "open_parquet",
    "read_parquet",
    "replacing",
    "serials_of",
]

_FAILURES = "failures.parquet"
_Result = TypeVar("_Result")
_KEY_BYTES, _VALUE_BYTES = 32, 8  # a row takes at least so much while it is brought into line
_TRIES = 10  # a collector replaces the file of the hour every few seconds


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path`; on success it takes its place, else it is removed.

    What killed processes have left in the folder is removed, too. An error of the disk names the
    file that was to be written.

    Parameters
    ----------
    path : Path
        Its folder is made if needed.
    """
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    temporary = temporary_beside(path)
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.errno and error.filename in (None, temporary, str(temporary)):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
        for folder in made:
            if not any(folder.iterdir()):
                folder.rmdir()


@dataclass(frozen=True, slots=True)
class RecordStore:
    """A `RECORDS` folder (docs/formats.md, section 1).

    Attributes
    ----------
    folder : Path
    kinds : FeatureKinds
        Columns to read as features.
    interval : int
        Nanoseconds between two records of a GPU.
    groups : tuple of str
        Text columns to read beside, where they are there.
    """

    folder: Path
    kinds: FeatureKinds
    interval: int
    groups: tuple[str, ...] = ()

    def files(self) -> list[tuple[dt.date, Path]]:
        """Return date and path of every file, in the order of their names.

        Raises
        ------
        RecordsError
            If the folder is not there, holds no partition, or one that is no date.
        """
        if not self.folder.is_dir():
            raise RecordsError(f"{self.folder}: no such folder, expected one of records.")
        found = []
        for partition in sorted(self.folder.glob("date=*")):
            date = _partition_date(partition)
            found += [(date, path) for path in sorted(partition.glob("*.parquet"))]
        found = [(date, path) for date, path in found if path.name[0] not in "._"]
        if not found:
            raise RecordsError(
                f"{self.folder}: holds no records, expected date=YYYY-MM-DD/*.parquet."
            )
        return found

    def columns(self) -> set[str]:
        """Return the columns that every file has."""
        return set.intersection(*(set(_schema(path).names) for _, path in self.files()))

    def has_failures(self) -> bool:
        """Tell whether anything says which GPUs failed."""
        return (self.folder / _FAILURES).exists() or FAILURE in self.columns()

    def read(self, start: int | None = None, end: int | None = None) -> Records:
        """Read the records of [start, end).

        Parameters
        ----------
        start, end : int, optional
            Nanoseconds since 1970 UTC.

        Raises
        ------
        RecordsError
            If a file cannot be read or breaks the contract, or no record is left.
        """
        return _until_still(lambda: self._read(start, end, ()))[0]

    def read_known(
        self, start: int | None = None, end: int | None = None
    ) -> tuple[Records, Failures]:
        """Read what anybody could know at `end`: the records of [start, end), and all failures.

        Parameters
        ----------
        start, end : int, optional
            Nanoseconds since 1970 UTC.

        Returns
        -------
        Records
        Failures
            Of the GPUs of the records, as the records of all dates before `end` and the failures
            table tell; without `end`, whatever they say of later.

        Raises
        ------
        RecordsError
            As `read`.
        """
        older = () if start is None else [p for date, p in self.files() if date <= _date(start)]
        records, before = _until_still(lambda: self._read(start, end, older))
        failures = Failures.of_records(records, before).joined(self.reported(records.serials))
        return records, failures if end is None else failures.known_before(end)

    def _read(
        self, start: int | None, end: int | None, older: Sequence[Path]
    ) -> tuple[Records, States | None]:
        """Read the keys of all files; then, while those are brought into line, the values.

        Of the older files, whose dates begin before `start`, only what failed is wanted.
        """
        paths = [path for _, path in self._chosen(start, end)]
        wanted = (MACHINE, SLOT, *self.groups)
        optional = tuple(dict.fromkeys(n for n in wanted if n not in self.kinds.names))
        heads = dict(zip(paths, in_threads(_Head.of, paths), strict=True))
        columns = {path: set(head.names) for path, head in heads.items()}
        _check_labels(columns)
        n_rows = sum(head.metadata.num_rows for head in heads.values())
        _check_room(self.folder, n_rows, len(self.kinds.names))
        found = set().union(*columns.values())
        texts = dict.fromkeys((*self.kinds.categorical, *(n for n in optional if n in found)))
        draft = RecordsBuilder(
            [head.metadata.num_rows for head in heads.values()], self.kinds, tuple(texts)
        )

        def keys_of(path: Path) -> Keys:
            with _opened(path, heads[path]) as columns:
                return check_keys(columns, file=str(path), start=start, end=end)

        def values(number: int) -> Values:
            path, room = paths[number], draft.room(number)
            with _opened(path, heads[path]) as columns:
                return check_values(
                    columns, file=str(path), kinds=self.kinds, optional=optional, room=room
                )

        with ThreadPoolExecutor(n_threads()) as pool:
            for number, keys in enumerate(pool.map(keys_of, paths)):
                draft.put_keys(number, keys)
            aligned = pool.submit(draft.align, self.interval)
            before = pool.map(partial(_older_keys, start), older)
            held = pool.map(values, range(len(paths)))
            try:
                aligned.result()
            except RecordsError as error:
                raise RecordsError(f"{self.folder}: {error}") from None
            failed = draft.failed_before([keys for keys in before if keys is not None])
            for number, one in enumerate(held):
                draft.put(number, one)
            return draft.records(), failed

    def _chosen(self, start: int | None, end: int | None) -> list[tuple[dt.date, Path]]:
        """Return the files whose date can hold records of [start, end)."""
        low = dt.date.min if start is None else _date(start)
        high = dt.date.max if end is None else _date(end - 1)
        files = [(date, path) for date, path in self.files() if low <= date <= high]
        if not files:
            raise RecordsError(f"{self.folder}: no records from {low} to {high}.")
        return files

    def reported(self, serials: Sequence[str]) -> Failures:
        """Return the failures of the table `failures.parquet`, of these serials by their place."""
        path = self.folder / _FAILURES
        return read_failures_table(path, serials) if path.exists() else Failures.none()


def _older_keys(start: int | None, path: Path) -> Keys | None:
    """Return the keys of a file before `start`; None if it does not say what failed."""

    def keys(columns: Columns) -> Keys | None:
        says = FAILURE in columns.column_names
        return check_keys(columns, file=str(path), end=start) if says else None

    return of_columns(path, keys)


def read_failures_table(path: Path, serials: Sequence[str]) -> Failures:
    """Read failures (docs/formats.md, section 1); a serial that is not asked for falls out."""
    table = read_parquet(path)
    for name in (SERIAL, "failed_at"):
        if name not in table.column_names:
            raise RecordsError(f"{path}: column `{name}` is missing.")
    failed = moments_of(table, "failed_at", path)
    there = failed.is_valid()
    failed_at = failed.filter(there).to_numpy()
    known = pc.coalesce(moments_of(table, "known_at", path), failed).filter(there).to_numpy()
    repaired = pc.fill_null(moments_of(table, "repaired_at", path), NEVER).filter(there).to_numpy()
    names = serials_of(table, path).filter(there).to_pylist()
    numbered = Failures(np.arange(len(names), dtype=np.int32), failed_at, repaired, known)
    return _renumbered(numbered, names, serials)


def serials_of(table: pa.Table, path: Path) -> pa.ChunkedArray:
    """Return the serials of a table as text."""
    try:
        return plain_text(table[SERIAL], name=True)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        detail = str(error).splitlines()[0]
        raise RecordsError(
            f"{path}: column `{SERIAL}` is {table[SERIAL].type}, expected text ({detail})."
        ) from None


def moments_of(table: pa.Table, name: str, path: Path) -> pa.ChunkedArray:
    """Return a column of timestamps as nanoseconds; all null if it is not there."""
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(len(table), pa.int64())])
    try:
        return moments(table[name])
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        detail = str(error).splitlines()[0]
        raise RecordsError(
            f"{path}: column `{name}` is {table[name].type}, expected a timestamp ({detail})."
        ) from None


def _renumbered(found: Failures, names: Sequence[str], serials: Sequence[str]) -> Failures:
    """Give failures the places of their serials; those of unknown serials fall out."""
    place = {serial: number for number, serial in enumerate(serials)}
    number = np.array([place.get(name, -1) for name in names] or [-1], dtype=np.int32)
    gpu = number[found.gpu]
    moved = Failures(gpu, found.failed_at, found.repaired_at, found.known_at)
    return moved.take(gpu >= 0)


def _partition_date(partition: Path) -> dt.date:
    """Read the date of a partition in its one form, so that no date has two folders."""
    try:
        date = dt.date.fromisoformat(partition.name.removeprefix("date="))
    except ValueError:
        date = None
    if date is None or partition.name != f"date={date.isoformat()}":
        raise RecordsError(f"{partition}: found `{partition.name}`, expected `date=YYYY-MM-DD`.")
    return date


def _date(moment: int) -> dt.date:
    return dt.date(1970, 1, 1) + dt.timedelta(days=moment // DAY)


def check_regular(path: Path) -> None:
    """Refuse a pipe or alike, which would be waited for without end."""
    if path.exists() and not path.is_file():
        raise RecordsError(f"{path}: is no regular file.")


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a Parquet file, or say which one is none, or cannot be worked with."""
    check_regular(path)
    try:
        file = pq.ParquetFile(path, read_dictionary=[])
        names = file.schema_arrow.names
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        raise _no_parquet(path, error) from None
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise RecordsError(f"{path}: column `{doubled[0]}` comes twice, expected it once.")
    _check_room(path, file.metadata.num_rows, 0)
    return file


def read_parquet(path: Path) -> pa.Table:
    """Read a whole Parquet file, or say which one is none.

    Raises
    ------
    RecordsError
        If it is none, has a column twice, or does not fit into memory.
    """
    file = open_parquet(path)
    _check_room(path, file.metadata.num_rows, len(file.schema_arrow.names))
    try:
        table = file.read()
        table.validate(full=True)  # text that is not UTF-8 is found here
    except (pa.ArrowInvalid, OSError) as error:
        raise _no_parquet(path, error) from None
    return table


def _check_room(path: Path, n_rows: int, n_columns: int) -> None:
    """Refuse rows that memory cannot hold: a file of some kilobytes can claim a billion."""
    need, room = n_rows * (_KEY_BYTES + _VALUE_BYTES * n_columns), _memory()
    if not 0 <= need <= room:
        raise RecordsError(
            f"{path}: claims {n_rows:,} rows, which need {need / 2**30:,.1f} GiB, expected at most "
            f"the {room / 2**30:,.1f} GiB of memory that there are."
        )


def _memory() -> int:
    """Return the bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _no_parquet(path: Path, error: Exception) -> RecordsError:
    detail = (str(error).splitlines() or [type(error).__name__])[0]
    return RecordsError(f"{path}: is no whole Parquet file ({detail}).")


def _schema(path: Path) -> pa.Schema:
    return open_parquet(path).schema_arrow


def _check_labels(columns: Mapping[Path, Collection[str]]) -> None:
    """Refuse a data set of which only some files say what failed."""
    without = [path for path, names in columns.items() if FAILURE not in names]
    if without and len(without) < len(columns):
        raise RecordsError(f"{without[0]}: column `{FAILURE}` is missing, other files have it.")


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes when another file takes this name."""
    now = path.stat()
    return now.st_ino, now.st_size, now.st_mtime_ns


class _ReplacedError(Exception):
    """Another file took the name while it was read: a collector is at work. Read it again."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


@dataclass(frozen=True, slots=True)
class _Head:
    """What the end of a file says of it, and which file that was."""

    metadata: pq.FileMetaData
    stamp: tuple[int, int, int]

    @classmethod
    def of(cls, path: Path) -> _Head:
        stamp = _stamp(path)  # before the head: where that is of another file, it shows
        return cls(open_parquet(path).metadata, stamp)

    @property
    def schema(self) -> pa.Schema:
        return self.metadata.schema.to_arrow_schema()

    @property
    def names(self) -> list[str]:
        return list(self.schema.names)


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


@contextmanager
def _opened(path: Path, head: _Head) -> Iterator[_FileColumns]:
    """Open a file whose head was read before; texts come as dictionaries."""
    schema = head.schema
    texts = [name for name in schema.names if is_text(schema.field(name).type)]
    try:
        # Not mapped into memory: a file that is cut while it is read would end the process.
        with pq.ParquetFile(path, metadata=head.metadata, read_dictionary=texts) as file:
            yield _FileColumns(path, file, schema.names)
    except (RecordsError, pa.ArrowInvalid, OSError) as error:
        if _stamp(path) != head.stamp:
            raise _ReplacedError(path) from None
        raise error if isinstance(error, RecordsError) else _no_parquet(path, error) from None
    if _stamp(path) != head.stamp:
        raise _ReplacedError(path)


def of_columns(path: Path, work: Callable[[Columns], _Result]) -> _Result:
    """Return what `work` makes of the columns of a file, of one and the same file.

    Raises
    ------
    RecordsError
        If it is no whole Parquet file.
    """

    def once() -> _Result:
        with _opened(path, _Head.of(path)) as columns:
            return work(columns)

    return _until_still(once)


def _until_still(read: Callable[[], _Result]) -> _Result:
    """Read until no file is replaced meanwhile."""
    for _ in range(_TRIES):
        try:
            return read()
        except _ReplacedError as replaced:
            path = replaced.path
    raise RecordsError(f"{path}: is replaced all the time, expected it to stay a moment.")
