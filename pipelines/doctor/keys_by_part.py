"""Keys of files that are read once: their rows, or runs of them, by part of the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.records.key_runs import (
    FEWEST_PER_RUN,
    changes_of,
    find_runs,
    times_of_runs,
)
from forewarn.features.records.ordering import stable_order
from forewarn.features.records.spillable_array import Move

__all__ = ["KeyRows", "KeysByPart", "RunSteps"]

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
        """Return the first rows of runs, by GPU and time, and their steps; None where many are due.

        A run is of one GPU, machine and state. Two rows of one time both stay: the later one wins.
        """
        rows = self.at(stable_order(self.gpu, self.time))
        changes, n = changes_of([rows.gpu, rows.machine, rows.failed]), len(rows.gpu)
        begin, step = find_runs(changes, rows.time, n // FEWEST_PER_RUN)
        if step is None:
            return None
        return rows.at(begin), RunSteps(np.diff(np.append(begin, n)), step)

    def changes_of_state(self) -> KeyRows:
        """Return the first row of each GPU, and those whose state is not that of the row before.

        Nothing begins or ends at the others, of rows by GPU and time.
        """
        return self.at(np.flatnonzero(changes_of([self.gpu, self.failed])))


class RunSteps(NamedTuple):
    """How many rows each run has, and how many nanoseconds lie between two."""

    n_rows: IntArray
    step: IntArray

    @classmethod
    def joined(cls, parts: Sequence[RunSteps]) -> Self:
        """Return those of all parts, one part after another."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def rows(self, first: KeyRows) -> KeyRows:
        """Return all rows of runs with these first ones."""
        gpu, machine = (np.repeat(codes, self.n_rows) for codes in (first.gpu, first.machine))
        time = times_of_runs(first.time, *self)
        return KeyRows(gpu, time, machine, np.repeat(first.failed, self.n_rows))


@dataclass(frozen=True, slots=True)
class KeysByPart:
    """The keys of some files by part of the fleet.

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

    def moved(self, move: Move) -> KeysByPart:
        """Return the same with its arrays where `move` puts them."""
        first = KeyRows(*(move(column) for column in self.first))
        steps = self.steps and RunSteps(*(move(column) for column in self.steps))
        return KeysByPart(self.begin, first, steps)

    def rows(self, part: int) -> KeyRows:
        """Return the rows of a part in the order of the files."""
        within = slice(self.begin[part], self.begin[part + 1])
        first = self.first.at(within)
        if self.steps is None:
            return first
        return RunSteps(*(column[within] for column in self.steps)).rows(first)
