"""Groups of peers, hour by hour, and the sums of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = ["Groups"]

DoubleArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of peers on a grid.

    Attributes
    ----------
    number : int
    group : ndarray of shape (n_gpus, n_hours)
        Group of each cell, -1 where it has none.
    home : ndarray of shape (n_gpus,)
        Group that the GPU was in all the time, -1 if there is none.
    visit : ndarray of shape (n_gpus,)
        The GPUs by slice and serial: sums are rounded alike, however many slices come at a time.
    """

    number: int
    group: CountArray
    home: CountArray
    visit: npt.NDArray[np.int64]

    def add(self, hourly: DoubleArray | CountArray, added: DoubleArray | CountArray) -> None:
        """Add the cells of each group up by hour.

        Parameters
        ----------
        hourly : ndarray of shape (n_gpus, n_hours)
        added : ndarray of shape (number, n_hours)
            Added to.
        """
        _add_by_group(hourly, self.group, self.home, self.visit, added)

    def add_few(self, cells: npt.NDArray[np.int64], counts: CountArray, added: CountArray) -> None:
        """Add the counts of some cells, numbered GPU after GPU, up by group and hour."""
        _add_cells(cells, counts, self.group, added)


@compiled
def _add_cells(
    cells: npt.NDArray[np.int64], counts: CountArray, group: CountArray, added: CountArray
) -> None:
    for number in range(len(cells)):
        gpu, hour = divmod(cells[number], group.shape[1])
        if group[gpu, hour] >= 0:
            added[group[gpu, hour], hour] += counts[number]


@compiled
def _add_by_group(
    hourly: DoubleArray | CountArray,
    group: CountArray,
    home: CountArray,
    visit: npt.NDArray[np.int64],
    added: DoubleArray | CountArray,
) -> None:
    """Add cells to those of the group that they belong to, hour by hour.

    A GPU that has been in one group all the time is added as a whole: its other cells hold 0.
    """
    for gpu in visit:
        if home[gpu] >= 0:
            own, line = hourly[gpu], added[home[gpu]]  # views: so that many hours go at a time
            for hour in range(len(own)):
                line[hour] += own[hour]
            continue
        for hour in range(hourly.shape[1]):
            if group[gpu, hour] >= 0:
                added[group[gpu, hour], hour] += hourly[gpu, hour]
