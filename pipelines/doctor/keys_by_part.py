"""Keys of a file that are read once: its rows, or runs of them, by part of the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.key_runs import times_of_runs
from forewarn.features.records.ordering import stable_order

__all__ = ["KeyRows", "KeysByPart", "RunSteps"]

_FEWEST_PER_RUN = 8  # rows on average: runs take twice the room of as many rows
Codes = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.int64]


class KeyRows(NamedTuple):
    """Rows, or the first rows of runs, in the order of their file.

    Attributes
    ----------
    gpu : ndarray of shape (n,), int32
        Number of the GPU, in the fleet or among those of a part.
    time : ndarray of shape (n,), int64
    machine : ndarray of shape (n,), int32
        -1 where it is not known.
    failed : ndarray of shape (n,), bool
    """

    gpu: Codes
    time: IntArray
    machine: Codes
    failed: npt.NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence[KeyRows]) -> Self:
        """Return the rows of all parts, one part after another."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def at(self, rows: IntArray | slice) -> KeyRows:
        """Return some of the rows."""
        return KeyRows(self.gpu[rows], self.time[rows], self.machine[rows], self.failed[rows])

    def in_runs(self) -> tuple[KeyRows, RunSteps] | None:
        """Return the first rows of runs, by GPU and time, and their steps; None where rows are few.

        A run is of one GPU, machine and state. Where two rows have one time the later one wins, and
        both stay.
        """
        rows = self.at(stable_order(self.gpu, self.time))
        begin, step = np.empty((2, len(rows.gpu)), dtype=np.int64)
        n = _find_runs(*rows, begin, step)
        if n * _FEWEST_PER_RUN > len(rows.gpu):
            return None
        begin = begin[:n].copy()
        n_rows = np.diff(np.append(begin, len(rows.gpu)))
        return rows.at(begin), RunSteps(n_rows, step[:n].copy())

    def changes_of_state(self) -> KeyRows:
        """Return the first row of each GPU, and those whose state is not that of the row before.

        Nothing begins or ends at the others, of rows by GPU and time.
        """
        change = np.full(len(self.gpu), True)
        change[1:] = (self.gpu[1:] != self.gpu[:-1]) | (self.failed[1:] != self.failed[:-1])
        return self.at(np.flatnonzero(change))


class RunSteps(NamedTuple):
    """How many rows each run has, and how many nanoseconds lie between two."""

    n_rows: IntArray
    step: IntArray

    def rows(self, first: KeyRows) -> KeyRows:
        """Return all rows of runs with these first ones."""
        gpu, machine = (np.repeat(codes, self.n_rows) for codes in (first.gpu, first.machine))
        time = times_of_runs(first.time, *self)
        return KeyRows(gpu, time, machine, np.repeat(first.failed, self.n_rows))


@dataclass(frozen=True, slots=True)
class KeysByPart:
    """The keys of a file by part of the fleet.

    Attributes
    ----------
    begin : ndarray of shape (n_parts + 1,)
        Where each part begins.
    first : KeyRows
    steps : RunSteps or None
        None where each is a row of its own.
    """

    begin: IntArray
    first: KeyRows
    steps: RunSteps | None

    @classmethod
    def of(
        cls, part: IntArray, n_parts: int, first: KeyRows, steps: RunSteps | None = None
    ) -> Self:
        """Bring rows or runs, of these parts each, in order."""
        order = np.argsort(part, kind="stable")
        begin = np.searchsorted(part[order], np.arange(n_parts + 1))
        in_order = steps and RunSteps(*(column[order] for column in steps))
        return cls(begin, first.at(order), in_order)

    def rows(self, part: int) -> KeyRows:
        """Return the rows of a part in the order of the file."""
        within = slice(self.begin[part], self.begin[part + 1])
        first = self.first.at(within)
        if self.steps is None:
            return first
        return RunSteps(*(column[within] for column in self.steps)).rows(first)


@compiled
def _find_runs(
    gpu: Codes,
    time: IntArray,
    machine: Codes,
    failed: npt.NDArray[np.bool_],
    begin: IntArray,
    step: IntArray,
) -> int:
    """Put the first row of each run and its step into two arrays; count the runs."""
    n = 0
    for row in range(len(gpu)):
        before, apart = row - 1, np.int64(0)
        if row and gpu[row] == gpu[before] and machine[row] == machine[before]:
            apart = (time[row] - time[before]) * (failed[row] == failed[before])
        if apart > 0 and (begin[n - 1] == before or step[n - 1] == apart):
            step[n - 1] = apart
            continue
        begin[n], step[n] = row, 0
        n += 1
    return n
