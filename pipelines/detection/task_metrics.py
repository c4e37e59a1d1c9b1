"""Machine metrics of tasks, read from Parquet one column at a time (docs/formats.md, section 6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.detection.sample_grid import TaskGrid, TaskGridError, lay_task
from forewarn.features.errors import InputError
from forewarn.features.records.text_columns import is_text
from forewarn.features.records.timestamp_columns import as_nanoseconds
from forewarn.models.detection.task import Task
from forewarn.pipelines.runtime.progress import note

__all__ = ["FilePull", "Pull", "PullError", "find_pulls", "open_pull", "sound_pulls", "task_name"]

Floats = npt.NDArray[np.float32]

_TIME, _MACHINE, _GROUP = "timestamp", "machine", "group"


class PullError(InputError):
    """Machine metrics that break the contract."""


@dataclass(frozen=True)
class Pull(ABC):
    """The metrics of one task, on its clock.

    Attributes
    ----------
    name : str
        Of the task.
    grid : TaskGrid
    groups : ndarray of shape (n_machines,), int
    group_names : tuple of str
        By machine; empty where it has none.
    """

    name: str
    grid: TaskGrid
    groups: npt.NDArray[np.int64]
    group_names: tuple[str, ...]

    @abstractmethod
    def series(self, name: str) -> Floats | None:
        """Return a metric, shape (n_machines, n_ticks); None if the task has none such."""

    def task(self, weights: npt.NDArray[np.float64] | None = None) -> Task:
        """Return it as the detector takes it."""
        n = len(self.grid.machines)
        return Task(
            machines=self.grid.machines,
            first_tick=self.grid.first_tick,
            n_ticks=self.grid.n_ticks,
            series=self.series,
            groups=self.groups,
            weights=np.ones(n) if weights is None else weights,
            group_names=self.group_names,
        )


@dataclass(frozen=True)
class FilePull(Pull):
    """A task in Parquet files; a column is read when it is asked for."""

    _files: tuple[tuple[Path, pq.ParquetFile], ...]
    _readable: npt.NDArray[np.bool_] | None

    @property
    def columns(self) -> frozenset[str]:
        """Columns that any of the files has."""
        return frozenset().union(*(file.schema_arrow.names for _, file in self._files))

    def series(self, name: str) -> Floats | None:
        """Return a metric (`Pull.series`).

        Raises
        ------
        PullError
            If the column holds no numbers.
        """
        if name not in self.columns:
            return None
        parts = [_numbers(path, file, name) for path, file in self._files]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self.grid.on_ticks(values if self._readable is None else values[self._readable])


def find_pulls(folder: Path) -> list[Path]:
    """Return the folder of every task.

    Raises
    ------
    PullError
        If the folder is not there or holds no task.
    """
    if not folder.is_dir():
        raise PullError(f"{folder}: no such folder, expected one of machine metrics.")
    folders = sorted(path for path in folder.glob("task=*") if path.is_dir())
    if not folders:
        raise PullError(f"{folder}: holds no task, expected task=NAME/*.parquet.")
    return folders


def open_pull(folder: Path, interval: int, span: int | None = None) -> FilePull:
    """Read who sent something when; the metrics are read when they are asked for.

    Parameters
    ----------
    folder : Path
        `task=NAME`.
    interval : int
        Nanoseconds between two samples of a machine.
    span : int, optional
        Nanoseconds before the last sample that are read; everything without it.

    Raises
    ------
    PullError
        If a file cannot be read, or has no usable `timestamp` or `machine`.
    """
    paths = sorted(path for path in folder.glob("*.parquet") if path.name[0] not in "._")
    if not paths:
        raise PullError(f"{folder}: holds no file, expected *.parquet.")
    files = tuple((path, _opened(path)) for path in paths)
    table = pa.concat_tables(_keys(path, file) for path, file in files)
    complete = pc.and_(table[_TIME].is_valid(), table[_MACHINE].is_valid())
    if span is not None and table.num_rows:
        complete = pc.and_(complete, pc.greater(table[_TIME], pc.max(table[_TIME]).as_py() - span))
    rows = None if pc.all(complete).as_py() in (True, None) else complete.to_numpy()
    table = table if rows is None else table.filter(complete)
    codes, names = _codes(table[_MACHINE])
    try:
        grid = lay_task(codes, names, table[_TIME].to_numpy(), interval)
    except TaskGridError as error:
        raise PullError(f"{folder}: {error}") from None
    groups, group_names = _groups(table, codes, names, grid.machines)
    return FilePull(task_name(folder), grid, groups, group_names, files, rows)


def task_name(folder: Path) -> str:
    """Return the task whose folder this is."""
    return folder.name.removeprefix("task=")


def sound_pulls(metrics: Path, interval: int, names: Sequence[str]) -> list[Path]:
    """Return the folders of the tasks whose metrics can be read; a note says why of the others.

    Parameters
    ----------
    metrics : Path
        `task=NAME/*.parquet`.
    interval : int
        Nanoseconds between two samples of a machine.
    names : sequence of str
        The metrics that will be read.

    Raises
    ------
    PullError
        If none is left; it says what is wrong with the first one.
    """
    folders, problems = find_pulls(metrics), dict[Path, PullError]()
    for folder in folders:
        try:
            pull = open_pull(folder, interval)
            for name in names:
                pull.series(name)
        except PullError as error:
            problems[folder] = error
    if len(problems) == len(folders):
        raise problems[folders[0]]
    for problem in problems.values():
        note(f"a task is left out: {problem}")
    return [folder for folder in folders if folder not in problems]


def _opened(path: Path) -> pq.ParquetFile:
    if not path.is_file():  # opening a FIFO would wait for ever
        raise PullError(f"{path}: is no regular file, expected Parquet.")
    try:
        schema = pq.read_schema(path)
        texts = [name for name in (_MACHINE, _GROUP) if name in schema.names]
        texts = [name for name in texts if is_text(schema.field(name).type)]
        file = pq.ParquetFile(path, read_dictionary=texts)
    except (pa.ArrowException, OSError) as error:
        raise PullError(f"{path}: cannot be read as Parquet ({_first_line(error)}).") from None
    names = schema.names
    for name in (_TIME, _MACHINE):
        if name not in names:
            raise PullError(f"{path}: column `{name}` is missing, found {', '.join(names[:8])}.")
    return file


def _read(path: Path, file: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
    for name in columns:
        if file.schema_arrow.names.count(name) > 1:
            raise PullError(f"{path}: column `{name}` is there twice, expected it once.")
    try:
        table = file.read(columns=list(columns), use_threads=True)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise PullError(f"{path}: cannot be read ({_first_line(error)}).") from None
    if table.num_rows != file.metadata.num_rows:  # compiled loops trust these lengths
        raise PullError(
            f"{path}: holds {table.num_rows} rows, expected {file.metadata.num_rows} as its footer "
            "says."
        )
    return table


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _keys(path: Path, file: pq.ParquetFile) -> pa.Table:
    """Return time, machine and group of a file's rows, in the types that are used inside."""
    has_group = _GROUP in file.schema_arrow.names
    table = _read(path, file, [_TIME, _MACHINE, *([_GROUP] if has_group else [])])
    if not pa.types.is_timestamp(table[_TIME].type):
        kind = table[_TIME].type
        raise PullError(f"{path}: column `{_TIME}` is {kind}, expected a timestamp.")
    group = table[_GROUP] if has_group else pa.nulls(len(table), pa.string())
    texts = {}
    for name, column in ((_MACHINE, table[_MACHINE]), (_GROUP, group)):
        if not (is_text(column.type) or pa.types.is_null(column.type)):
            raise PullError(f"{path}: column `{name}` is {column.type}, expected a string.")
        texts[name] = _as_dictionary(column)
    return pa.table({_TIME: as_nanoseconds(table[_TIME]), **texts})


def _as_dictionary(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    dictionary = pa.dictionary(pa.int32(), pa.string())
    if pa.types.is_dictionary(column.type):
        return column.cast(dictionary)
    return pa.chunked_array(column.cast(pa.string())).dictionary_encode().cast(dictionary)


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return number and name of the machine of every row; each name is used."""
    values = column.unify_dictionaries().combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks else pa.array([], column.type)
    codes = values.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    names = values.dictionary.to_pylist()
    used = np.flatnonzero(np.bincount(codes, minlength=len(names)))
    if len(used) == len(names):
        return codes, names
    new_code = np.zeros(len(names), dtype=np.int32)
    new_code[used] = np.arange(len(used))
    return new_code[codes], [names[i] for i in used]


def _groups(
    table: pa.Table,
    codes: npt.NDArray[np.int32],
    names: Sequence[str],
    machines: Sequence[str],
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Return number and name of each machine's last group, in the order of the grid."""
    if table[_GROUP].null_count == len(table):
        return np.zeros(len(machines), dtype=np.int64), ("",) * len(machines)
    values = table[_GROUP].unify_dictionaries().combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0)
    group_names = [*values.dictionary.to_pylist(), ""]
    none = len(group_names) - 1
    groups = pc.fill_null(values.indices, none).to_numpy(zero_copy_only=False).astype(np.int64)
    last = np.full(len(names), none, dtype=np.int64)
    last[codes] = groups
    code_of = {name: i for i, name in enumerate(names)}
    numbers = last[[code_of[name] for name in machines]]
    return numbers, tuple(group_names[number] for number in numbers)


def _numbers(path: Path, file: pq.ParquetFile, name: str) -> Floats:
    """Return a metric of one file as float32; NaN where there is none."""
    if name not in file.schema_arrow.names:
        return np.full(file.metadata.num_rows, np.nan, dtype=np.float32)
    column = _read(path, file, [name])[name]
    kind = column.type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise PullError(f"{path}: column `{name}` is {kind}, expected numbers.")
    if column.null_count or not pa.types.is_floating(kind):
        column = pc.fill_null(column.cast(pa.float64()), float("nan"))
    values: Floats = column.to_numpy().astype(np.float32)
    return values
