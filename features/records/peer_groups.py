"""Peer groups by hour, and sums over their members."""

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
    """Peer groups on an hourly grid; most GPUs stay in one group.

    Attributes
    ----------
    number : int
    home : ndarray of shape (n_gpus,)
        The only group of a GPU; -1 if it has none or changed groups.
    line : ndarray of shape (n_gpus,)
        Row of `group` for a GPU that changed groups; -1 for all others.
    group : ndarray of shape (n_moved, n_hours)
        Group in each hour: -1 without a group, -2 without a row.
    visit : ndarray of shape (n_gpus,)
        GPUs ordered by slice and serial, so that rounding does not depend on the number of slices.
    """

    number: int
    home: Int32Array
    line: Int32Array
    group: Int32Array
    visit: Int64Array

    @classmethod
    def from_cells(cls, number: int, cells: SignedIntArray, visit: Int64Array) -> Self:
        """Find the groups of GPUs from the groups of cells.

        Parameters
        ----------
        number : int
        cells : ndarray of shape (n_gpus, n_hours)
            Group of each cell: -1 without a group, -2 without a row.
        visit : ndarray of shape (n_gpus,)
        """
        highest = np.maximum(cells.max(axis=1, initial=_NO_ROW), -1).astype(np.int32)
        moved = ((cells != _NO_ROW) & (cells != highest[:, None])).any(axis=1)
        home = np.where(moved, np.int32(-1), highest)
        line = np.full(len(home), -1, dtype=np.int32)
        line[moved] = np.arange(np.count_nonzero(moved))
        return cls(number, home, line, cells[moved].astype(np.int32), visit)

    def at(self, cell: Int64Array) -> Int32Array:
        """Return the group of cells that have rows; cells are numbered GPU after GPU."""
        gpu, hour = np.divmod(cell, self.group.shape[1])
        group, moved = self.home[gpu], np.flatnonzero(self.line[gpu] >= 0)
        group[moved] = self.group[self.line[gpu[moved]], hour[moved]]
        return group

    def within(self, gpu: int, hours: slice, group: int) -> BoolArray | None:
        """Return the hours of a GPU in a group other than its home; None means all hours."""
        if self.line[gpu] < 0:
            return np.zeros(hours.stop - hours.start, dtype=bool)
        cells = self.group[self.line[gpu], hours]
        return None if ((cells == group) | (cells == _NO_ROW)).all() else cells == group

    def add(self, hourly: Float64Array | Int32Array, added: Float64Array | Int32Array) -> None:
        """Add hourly sums of GPUs to those of their groups.

        Parameters
        ----------
        hourly : ndarray of shape (n_gpus, n_hours)
        added : ndarray of shape (number, n_hours)
            Updated in place.
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
    """Add cells to the sums of their group, hour by hour.

    A GPU that never changed groups is added as a whole, since its other cells are 0.
    """
    line, group = moved
    for gpu in visit:
        if home[gpu] >= 0:
            own, sums = hourly[gpu], added[home[gpu]]  # views, so that the loop is vectorised
            for hour in range(len(own)):
                sums[hour] += own[hour]
        elif line[gpu] >= 0:
            for hour in range(hourly.shape[1]):
                if group[line[gpu], hour] >= 0:
                    added[group[line[gpu], hour], hour] += hourly[gpu, hour]
