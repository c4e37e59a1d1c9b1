"""Groups of peers, hour by hour, and the sums of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from forewarn.features.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    SignedIntArray,
)
from forewarn.features.compiled import compiled

__all__ = ["PeerGroups"]

_NO_ROW = -2


@dataclass(frozen=True, slots=True)
class PeerGroups:
    """Groups of peers on a grid: of each GPU one, but for those that have moved.

    Attributes
    ----------
    number : int
    home : ndarray of shape (n_gpus,)
        Group that the GPU was in all the time, -1 if there is none.
    line : ndarray of shape (n_gpus,)
        Which line of `group` is that of a GPU that has moved; -1 for all others.
    group : ndarray of shape (n_moved, n_hours)
        Group of each cell of those: -1 where it has none, -2 where there is no row.
    visit : ndarray of shape (n_gpus,)
        The GPUs by slice and serial: sums are rounded alike, however many slices come at a time.
    """

    number: int
    home: Int32Array
    line: Int32Array
    group: Int32Array
    visit: Int64Array

    @classmethod
    def from_cells(cls, number: int, cells: SignedIntArray, visit: Int64Array) -> Self:
        """Find the groups of GPUs from those of cells.

        Parameters
        ----------
        number : int
        cells : ndarray of shape (n_gpus, n_hours)
            The group of each cell; -1 where it has none, -2 where there is no row.
        visit : ndarray of shape (n_gpus,)
        """
        highest = np.maximum(cells.max(axis=1, initial=_NO_ROW), -1).astype(np.int32)
        moved = ((cells != _NO_ROW) & (cells != highest[:, None])).any(axis=1)
        home = np.where(moved, np.int32(-1), highest)
        line = np.full(len(home), -1, dtype=np.int32)
        line[moved] = np.arange(np.count_nonzero(moved))
        return cls(number, home, line, cells[moved].astype(np.int32), visit)

    def at(self, cell: Int64Array) -> Int32Array:
        """Return the group of some cells that have rows, numbered GPU after GPU."""
        gpu, hour = np.divmod(cell, self.group.shape[1])
        group, moved = self.home[gpu], np.flatnonzero(self.line[gpu] >= 0)
        group[moved] = self.group[self.line[gpu[moved]], hour[moved]]
        return group

    def within(self, gpu: int, hours: slice, group: int) -> BoolArray | None:
        """Tell which hours of a GPU it was in a group that is not its home; None if in all."""
        if self.line[gpu] < 0:
            return np.zeros(hours.stop - hours.start, dtype=bool)
        cells = self.group[self.line[gpu], hours]
        return None if ((cells == group) | (cells == _NO_ROW)).all() else cells == group

    def add(self, hourly: Float64Array | Int32Array, added: Float64Array | Int32Array) -> None:
        """Add the cells of each group up by hour.

        Parameters
        ----------
        hourly : ndarray of shape (n_gpus, n_hours)
        added : ndarray of shape (number, n_hours)
            Added to.
        """
        _add_by_group(hourly, self.home, (self.line, self.group), self.visit, added)


@compiled
def _add_by_group(
    hourly: Float64Array | Int32Array,
    home: Int32Array,
    moved: tuple[Int32Array, Int32Array],
    visit: Int64Array,
    added: Float64Array | Int32Array,
) -> None:
    """Add cells to those of the group that they belong to, hour by hour.

    A GPU that has been in one group all the time is added as a whole: its other cells hold 0.
    """
    line, group = moved
    for gpu in visit:
        if home[gpu] >= 0:
            own, sums = hourly[gpu], added[home[gpu]]  # views: so that many hours go at a time
            for hour in range(len(own)):
                sums[hour] += own[hour]
        elif line[gpu] >= 0:
            for hour in range(hourly.shape[1]):
                if group[line[gpu], hour] >= 0:
                    added[group[line[gpu], hour], hour] += hourly[gpu, hour]
