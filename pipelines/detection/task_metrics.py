"""Reads machine metrics of tasks from Parquet, column by column (docs/formats.md, section 6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forewarn.features.array_types import (
    BoolArray,
    Float32Array,
    Float64Array,
    Int32Array,
    Int64Array,
)
from forewarn.features.detection.sample_grid import TaskGrid, TaskGridError, build_task_grid
from forewarn.features.detection.sampling import Sampling
from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND
from forewarn.models.detection.monitored_task import Task
from forewarn.pipelines.detection.sample_files import (
    GROUP,
    MACHINE,
    TIME,
    PullError,
    open_samples,
    read_keys,
    read_metric,
)
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.regular_files import matching_paths

__all__ = [
    "FilePull",
    "Pull",
    "PullError",
    "find_pulls",
    "open_pull",
    "readable_pulls",
    "task_name",
]


_GAUGES = Sampling()


@dataclass(frozen=True)
class Pull(ABC):
    """The metrics of one task on its time grid.

    Attributes
    ----------
    name : str
        Name of the task.
    grid : TaskGrid
    groups : ndarray of shape (n_machines,), int
    group_names : tuple of str
        Name of each machine's group; empty if it has none.
    sampling : Sampling
    """

    name: str
    grid: TaskGrid
    groups: Int64Array
    group_names: tuple[str, ...]
    sampling: Sampling

    @abstractmethod
    def series(self, name: str) -> Float32Array | None:
        """Return a metric, shape (n_machines, n_ticks), or None if the task does not have it.

        For a counter, the increase per interval.
        """

    def unit(self, name: str) -> str | None:
        """Return the unit of a counter's increase; None for a gauge."""
        if name not in self.sampling.counters:
            return None
        return f"per {format_duration(self.grid.interval / SECOND)}"

    def task(self, weights: Float64Array | None = None) -> Task:
        """Return the task in the form that the detector expects."""
        n = len(self.grid.machines)
        return Task(
            machines=self.grid.machines,
            first_tick=self.grid.first_tick,
            n_ticks=self.grid.n_ticks,
            series=lru_cache(maxsize=1)(self.series),  # the activity is read twice in a row
            groups=self.groups,
            weights=np.ones(n) if weights is None else weights,
            group_names=self.group_names,
        )


@dataclass(frozen=True)
class FilePull(Pull):
    """A task in Parquet files; a column is read on demand."""

    _files: tuple[tuple[Path, pq.ParquetFile], ...]
    _readable: BoolArray | None
    _time: Int64Array

    @property
    def columns(self) -> frozenset[str]:
        """Columns of all files together."""
        return frozenset().union(*(file.schema_arrow.names for _, file in self._files))

    def series(self, name: str) -> Float32Array | None:
        """Return a metric (`Pull.series`).

        Raises
        ------
        PullError
            If the column is not numeric.
        """
        values = self._sent(name)
        if values is None:
            return None
        slowest = self.sampling.max_sample_ticks
        if name in self.sampling.counters:
            counted = values.astype(np.float64)
            return self.grid.increases_on_ticks(counted, self._time, slowest)
        return self.grid.on_ticks(values.astype(np.float32), slowest)

    def as_sent(self, name: str) -> Float64Array | None:
        """Return a metric as sent, at full precision, shape (n_machines, n_ticks)."""
        values = self._sent(name)
        return None if values is None else self.grid.as_sent(values.astype(np.float64))

    def _sent(self, name: str) -> npt.NDArray[np.floating[Any]] | None:
        if name not in self.columns:
            return None
        parts = [read_metric(path, file, name) for path, file in self._files]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return values if self._readable is None else values[self._readable]


def find_pulls(folder: Path) -> list[Path]:
    """Return the folder of every task.

    Raises
    ------
    PullError
        If the folder does not exist or holds no task.
    """
    if not folder.is_dir():
        raise PullError(f"{folder}: no such folder, expected a folder of machine metrics.")
    folders = [path for path in matching_paths(folder, "task=*", PullError) if path.is_dir()]
    if not folders:
        raise PullError(f"{folder}: holds no task, expected task=NAME/*.parquet.")
    return folders


def open_pull(
    folder: Path, interval: int, span: int | None = None, sampling: Sampling = _GAUGES
) -> FilePull:
    """Read the machines and times of a task; metrics are read on demand.

    Parameters
    ----------
    folder : Path
        `task=NAME`.
    interval : int
        Nanoseconds between two samples of a machine.
    span : int, optional
        Read only this many nanoseconds before the last sample; all of them by default.
    sampling : Sampling
        By default every metric is a gauge that is sampled every interval.

    Raises
    ------
    PullError
        If a file cannot be read, or lacks a usable `timestamp` or `machine`.
    """
    paths = [
        path for path in matching_paths(folder, "*.parquet", PullError) if path.name[0] not in "._"
    ]
    if not paths:
        raise PullError(f"{folder}: holds no file, expected *.parquet.")
    files = tuple((path, open_samples(path)) for path in paths)
    table = pa.concat_tables(read_keys(path, file) for path, file in files)
    complete = pc.and_(table[TIME].is_valid(), table[MACHINE].is_valid())
    if span is not None and table.num_rows:
        complete = pc.and_(complete, pc.greater(table[TIME], pc.max(table[TIME]).as_py() - span))
    rows = None if pc.all(complete).as_py() in (True, None) else complete.to_numpy()
    table = table if rows is None else table.filter(complete)
    codes, names = _codes(table[MACHINE])
    try:
        time = table[TIME].to_numpy()
        grid = build_task_grid(codes, names, time, interval)
    except TaskGridError as error:
        raise PullError(f"{folder}: {error}") from None
    groups, group_names = _groups(table, codes, names, grid.machines)
    return FilePull(task_name(folder), grid, groups, group_names, sampling, files, rows, time)


def task_name(folder: Path) -> str:
    """Return the name of the task in a folder."""
    return folder.name.removeprefix("task=")


def readable_pulls(metrics: Path, interval: int, names: Sequence[str]) -> list[Path]:
    """Return the folders of tasks with readable metrics; note the reason for each other one.

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
        If none is left; the message is that of the first one.
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
        note(f"a task is ignored: {problem}")
    return [folder for folder in folders if folder not in problems]


def _codes(column: pa.ChunkedArray) -> tuple[Int32Array, list[str]]:
    """Return the machine number of every row, and the names by number; each name occurs."""
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
    codes: Int32Array,
    names: Sequence[str],
    machines: Sequence[str],
) -> tuple[Int64Array, tuple[str, ...]]:
    """Return number and name of each machine's last group, in the order of the grid."""
    if table[GROUP].null_count == len(table):
        return np.zeros(len(machines), dtype=np.int64), ("",) * len(machines)
    values = table[GROUP].unify_dictionaries().combine_chunks()
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
