"""Room for the sums of some hours, to which a column is added part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.records.cell_sums import CellSums, CellWindow, FewPlaces, in_gpu_order
from forewarn.features.records.cells import CellShape

__all__ = ["Add", "FewCells", "SumRoom"]

DoubleArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Add = Callable[[CellSums], None]


class FewCells(NamedTuple):
    """Numbers of some cells, GPU after GPU: their numbers rise."""

    cell: IntArray
    value: npt.NDArray[Any]


class SumRoom:
    """Room for sums of a level and its squares, or of what counts, that is used again and again.

    Rows that come hour after hour are added up hour after hour, a few hours at a time, so that the
    cells of one row after another lie together, and then put where each GPU has its hours.

    Parameters
    ----------
    shape : CellShape
        Of all cells; those of some hours are in memory.
    """

    def __init__(self, shape: CellShape) -> None:
        self._shape = shape
        self._none = FewPlaces.of(0, np.float64)
        self._levels: DoubleArray = np.empty(0)
        self._by_hour: DoubleArray = np.empty(0)
        self._counts = self._lost = FewPlaces.of(0, np.int32)
        self._window, self._done = self._window_of((0, 0)), 0

    def _window_of(self, hours: tuple[int, int]) -> CellWindow:
        n_gpus, n_hours = self._shape.n_gpus, self._shape.n_hours
        gpu_after_gpu = self._shape.gpu_after_gpu
        return CellWindow(n_gpus, n_hours, gpu_after_gpu, hours[0], hours[1] - hours[0])

    def begin(self, hours: tuple[int, int]) -> None:
        """Begin with nothing in some hours: the first one, and one more than the last."""
        self._lost.forget()
        self._counts.forget()
        self._window, self._done = self._window_of(hours), 0
        self._lost = self._lost.of_size(self._n_cells, np.int32)

    @property
    def _n_cells(self) -> int:
        return self._shape.n_gpus * self._window.width

    def count(self, add: Add) -> None:
        """Have something added to counts."""
        self._counts = self._counts.of_size(self._n_cells, np.float64)
        add(CellSums(self._window, np.empty((2, 0)), self._counts, self._lost))

    def counts(self) -> FewCells:
        """Return what was counted, and forget it."""
        places, value = self._counts.noted()
        return FewCells(self._window.cells(places), value)

    def lost(self) -> FewCells:
        """Return how many rows had no reading, and forget it."""
        places, n_rows = self._lost.noted()
        return FewCells(self._window.cells(places), n_rows)

    def add(self, add: Add) -> None:
        """Have something added to sums and squares, GPU after GPU."""
        add(CellSums(self._window, self.levels().reshape(2, -1), self._none, self._lost))

    def add_by_hour(self, hours: tuple[int, int], add: Add) -> None:
        """Have something added to sums and squares, hour after hour.

        Parameters
        ----------
        hours : tuple of int
            The first hour, and one more than the last, of the cells that are added to.
        add : callable
            The sums that it is given begin with `CellWindow.first_cell`.
        """
        begin = self._window.first
        sums, (first, last) = self._room, (hours[0] - begin, hours[1] - begin)
        n_gpus, again = sums.shape[1], min(last, self._done)
        by_hour = self._hours(last - first, n_gpus)
        by_hour[:, : max(0, again - first)] = sums[:, :, first:again].transpose(0, 2, 1)
        window = self._window._replace(first_cell=hours[0] * n_gpus)
        add(CellSums(window, by_hour.reshape(2, -1), self._none, self._lost))
        self._fill_up_to(first)
        in_gpu_order(by_hour, sums[:, :, first:last])
        self._done = max(self._done, last)

    def levels(self) -> DoubleArray:
        """Return sums and squares, shape (2, n_gpus, n_hours): 0 where nothing was added."""
        self._fill_up_to(self._window.width)
        return self._room

    @property
    def _room(self) -> DoubleArray:
        size = 2 * self._n_cells
        if len(self._levels) < size:
            self._levels = np.empty(size)
        return self._levels[:size].reshape(2, *self._window.shape)

    def _fill_up_to(self, hour: int) -> None:
        """Put 0 into the hours before one that nothing was added to."""
        self._room[:, :, self._done : hour] = 0.0
        self._done = max(self._done, hour)

    def _hours(self, n_hours: int, n_gpus: int) -> DoubleArray:
        size = 2 * n_hours * n_gpus
        if len(self._by_hour) < size:
            self._by_hour = np.empty(size)
        room = self._by_hour[:size].reshape(2, n_hours, n_gpus)
        room.fill(0.0)
        return room
