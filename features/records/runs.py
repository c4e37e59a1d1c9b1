"""Columns that seldom change: where the value of each GPU changes, and to what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = ["Runs", "RunsBuilder"]

IntArray = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.int32]

_NOTHING = -(2**40)  # no value of 32 bits


@dataclass(frozen=True, slots=True)
class Runs:
    """The values of a column by GPU and row as read.

    Attributes
    ----------
    first : ndarray of shape (n_gpus + 1,)
        First run of each GPU.
    row : ndarray of shape (n_runs,)
        Row as read at which each run begins.
    value : ndarray of shape (n_runs,), int32
    """

    first: IntArray
    row: IntArray
    value: CodeArray

    def at(self, gpu: CodeArray, row: IntArray) -> CodeArray:
        """Return the values of rows as read, of any shape; `gpu` is the GPU of each."""
        values = np.empty(row.shape, dtype=np.int32)
        runs = self.first, self.row, self.value
        _look_up(runs, gpu.reshape(-1), row.reshape(-1), values.reshape(-1))
        return values

    def of_one_value(self) -> CodeArray:
        """Return the value that each GPU has always had, shape (n_gpus,); -1 if it has changed."""
        values = np.full(len(self.first) - 1, -1, dtype=np.int32)
        gpus = np.flatnonzero(np.diff(self.first) == 1)
        values[gpus] = self.value[self.first[gpus]]
        return values

    def on_grid(self, gpu: IntArray, row: npt.NDArray[np.integer]) -> CodeArray:
        """Return the values of rows as read of some GPUs, shape (n, n_hours); of row -1, -1."""
        values = np.full(row.shape, -1, dtype=np.int32)
        _look_up_lines((self.first, self.row, self.value), gpu, row, values)
        return values

    def renumbered(self, number: CodeArray) -> Runs:
        """Return the runs with the number of each value in its place; the last is that of -1."""
        return replace(self, value=number[self.value])

    def of_gpus(self, number: CodeArray, n_gpus: int) -> Runs:
        """Return the runs with the GPUs numbered among more; `number` holds rising new numbers."""
        n_runs = np.zeros(n_gpus, dtype=np.int64)
        n_runs[number] = np.diff(self.first)
        return replace(self, first=np.append(0, np.cumsum(n_runs)))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Runs, IntArray]], n_gpus: int) -> Runs:
        """Return the runs of slices of a fleet, each with the numbers of its GPUs there."""
        owner = np.concatenate([np.repeat(gpu, np.diff(runs.first)) for runs, gpu in parts])
        order = np.argsort(owner, kind="stable")
        row, value = (
            np.concatenate([getattr(runs, name) for runs, _ in parts])[order]
            for name in ("row", "value")
        )
        first = np.append(0, np.cumsum(np.bincount(owner, minlength=n_gpus)))
        return cls(first, row, value)

    @classmethod
    def without_values(cls, n_gpus: int) -> Runs:
        """Return runs in which no row has a value."""
        row = np.zeros(n_gpus, dtype=np.int64)
        return cls(np.arange(n_gpus + 1), row, np.full(n_gpus, -1, dtype=np.int32))


class RunsBuilder:
    """Runs of rows that come in order of time for each GPU, part by part.

    Parameters
    ----------
    n_gpus : int
    """

    def __init__(self, n_gpus: int) -> None:
        self._n_gpus = n_gpus
        self._last = np.full(n_gpus, _NOTHING, dtype=np.int64)
        self._parts: list[tuple[IntArray, CodeArray, CodeArray]] = []

    def add(self, values: CodeArray, gpu: CodeArray, first_row: int) -> None:
        """Take the rows from `first_row` on; those of GPU -1 are looked through."""
        number, owner, value = self._changes(values, gpu)
        self._parts.append((number.astype(np.int64) + first_row, owner, value))

    def add_at(self, values: CodeArray, gpu: CodeArray, row: IntArray) -> None:
        """Take the values at some rows, which rise for each GPU; in between they stay.

        Those of GPU -1 are looked through.
        """
        number, owner, value = self._changes(values, gpu)
        self._parts.append((row[number], owner, value))

    def _changes(self, values: CodeArray, gpu: CodeArray) -> tuple[CodeArray, CodeArray, CodeArray]:
        """Return number, GPU and value of those that differ from the GPU's one before."""
        number, owner, value = (np.empty(len(values), dtype=np.int32) for _ in range(3))
        n = _note_changes(values, gpu, self._last, number, owner, value)
        return number[:n], owner[:n].copy(), value[:n].copy()

    def runs(self) -> Runs:
        """Return the runs of all rows."""
        none = (np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
        row, owner, value = (
            np.concatenate(parts) for parts in zip(none, *self._parts, strict=True)
        )
        order = np.argsort(owner, kind="stable")
        first = np.zeros(self._n_gpus + 1, dtype=np.int64)
        np.cumsum(np.bincount(owner, minlength=self._n_gpus), out=first[1:])
        return Runs(first, row[order], value[order])


@compiled
def _note_changes(
    values: CodeArray,
    gpu: CodeArray,
    last: IntArray,
    row: CodeArray,
    owner: CodeArray,
    value: CodeArray,
) -> int:
    """Put row, GPU and value of each change into the first places of three arrays; count them."""
    n = 0
    for i in range(len(values)):
        if gpu[i] >= 0 and last[gpu[i]] != values[i]:
            last[gpu[i]] = values[i]
            row[n], owner[n], value[n] = i, gpu[i], values[i]
            n += 1
    return n


@compiled
def _look_up(
    runs: tuple[IntArray, IntArray, CodeArray],
    gpu: CodeArray,
    row: npt.NDArray[np.integer],
    values: CodeArray,
) -> None:
    """Find the last run of each row's GPU that begins at the row or before it."""
    first, begin, value = runs
    for i in range(len(row)):
        low, high = first[gpu[i]], first[gpu[i] + 1]
        while high - low > 1:
            middle = (low + high) // 2
            if begin[middle] <= row[i]:
                low = middle
            else:
                high = middle
        values[i] = value[low]


@compiled
def _look_up_lines(
    runs: tuple[IntArray, IntArray, CodeArray],
    gpu: IntArray,
    row: npt.NDArray[np.integer],
    values: CodeArray,
) -> None:
    """Look up rows that rise along the line of each GPU, so that its runs are gone through once."""
    first, begin, value = runs
    for line in range(row.shape[0]):
        run, end = first[gpu[line]], first[gpu[line] + 1]
        for hour in range(row.shape[1]):
            if row[line, hour] >= 0:
                while run + 1 < end and begin[run + 1] <= row[line, hour]:
                    run += 1
                values[line, hour] = value[run]
