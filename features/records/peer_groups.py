"""Groups of peers, hour by hour, and the sums of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.few_hours import FewHours
from forewarn.features.records.runs import Runs

__all__ = ["Groups"]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]
_NO_ROW = -2


@dataclass(frozen=True, slots=True)
class Groups:
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
    home: CountArray
    line: CountArray
    group: CountArray
    visit: IntArray

    @classmethod
    def of(cls, number: int, runs: Runs, first_row: IntArray, visit: IntArray) -> Self:
        """Find the groups of cells from those of rows.

        Parameters
        ----------
        number : int
        runs : Runs
            The group of each row as read; -1 is none.
        first_row : ndarray of shape (n_gpus, n_hours)
            First row of each cell, whose group it has; -1 where there is none.
        visit : ndarray of shape (n_gpus,)
        """
        home = runs.of_one_value()
        several = np.flatnonzero(np.diff(runs.first) > 1)
        row = first_row[several]
        group = np.where(row < 0, _NO_ROW, runs.on_grid(several, row))
        highest = group.max(axis=1, initial=-1)
        moved = ((row >= 0) & (group != highest[:, None])).any(axis=1)
        home[several] = np.where(moved, -1, highest)
        line = np.full(len(home), -1, dtype=np.int32)
        line[several[moved]] = np.arange(np.count_nonzero(moved))
        return cls(number, home, line, group[moved], visit)

    def at(self, cell: IntArray) -> CountArray:
        """Return the group of some cells that have rows, numbered GPU after GPU."""
        gpu, hour = np.divmod(cell, self.group.shape[1])
        group, moved = self.home[gpu], np.flatnonzero(self.line[gpu] >= 0)
        group[moved] = self.group[self.line[gpu[moved]], hour[moved]]
        return group

    def within(self, gpu: int, hours: slice, group: int) -> npt.NDArray[np.bool_] | None:
        """Tell which hours of a GPU it was in a group that is not its home; None if in all."""
        if self.line[gpu] < 0:
            return np.zeros(hours.stop - hours.start, dtype=bool)
        cells = self.group[self.line[gpu], hours]
        return None if ((cells == group) | (cells == _NO_ROW)).all() else cells == group

    def add(
        self,
        hourly: DoubleArray | CountArray,
        added: DoubleArray | CountArray,
        hours: slice = slice(None),
    ) -> None:
        """Add the cells of each group up by hour.

        Parameters
        ----------
        hourly : ndarray of shape (n_gpus, n)
        added : ndarray of shape (number, n_hours)
            Added to.
        hours : slice
            Which n hours those are.
        """
        moved = self.line, self.group[:, hours]
        _add_by_group(hourly, self.home, moved, self.visit, added[:, hours])

    def of_few(self, few: FewHours) -> tuple[IntArray, npt.NDArray[Any]]:
        """Return the cells of groups that few hours lie in, and their numbers, as they are added.

        Returns
        -------
        ndarray of shape (m,), int32 or int64
            Group x `n_hours` + hour, as often as there are hours to add.
        ndarray of shape (m,)
        """
        begin = np.searchsorted(few.cell, np.arange(len(self.visit) + 1) * few.n_hours)
        n_cells = self.number * few.n_hours
        cell: IntArray = np.empty(len(few.cell), np.int32 if n_cells < 2**31 else np.int64)
        number: IntArray = np.empty(len(few.cell), dtype=np.int64)
        moved = self.line, self.group
        n = _cells_of_groups(few.cell, begin, self.visit, (self.home, moved), cell, number)
        return cell[:n], few.value[number[:n]]


@compiled
def _cells_of_groups(
    cells: IntArray,
    begin: IntArray,
    visit: IntArray,
    groups: tuple[CountArray, tuple[CountArray, CountArray]],
    cell: IntArray,
    number: IntArray,
) -> int:
    """Put cells of groups, and the numbers of those that lie in them, into two arrays; count."""
    home, (line, group) = groups
    n, n_hours = 0, group.shape[1]
    for gpu in visit:
        for few in range(begin[gpu], begin[gpu + 1]):
            hour = cells[few] - gpu * n_hours
            own = home[gpu] if line[gpu] < 0 else group[line[gpu], hour]
            if own >= 0:
                cell[n], number[n] = own * n_hours + hour, few
                n += 1
    return n


@compiled
def _add_by_group(
    hourly: DoubleArray | CountArray,
    home: CountArray,
    moved: tuple[CountArray, CountArray],
    visit: IntArray,
    added: DoubleArray | CountArray,
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
