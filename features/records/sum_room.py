"""Room for the hourly sums of one channel at a time, to which a column is added part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.records.cells import LostReadings, in_gpu_order

__all__ = ["Add", "SumRoom"]

DoubleArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int32]
Add = Callable[[DoubleArray, LostReadings], None]


class SumRoom:
    """Sums of n_gpus x n_hours cells, and of what.

    Rows that come hour after hour are added up hour after hour, a few hours at a time, so that the
    cells of one row after another lie together, and then put where each GPU has its hours.

    Parameters
    ----------
    row_count : ndarray of shape (n_gpus, n_hours)
        Rows of each cell.
    gpu_after_gpu : bool
        How cells are numbered (`CellShape`).

    Attributes
    ----------
    lost : LostReadings
    """

    def __init__(self, row_count: CountArray, *, gpu_after_gpu: bool) -> None:
        self.lost = LostReadings.of(row_count, gpu_after_gpu)
        self._sums: DoubleArray = np.empty((2, *row_count.shape))
        self._by_hour: DoubleArray = np.empty(0)
        self._n, self._done = 2, 0

    def begun(self, n_sums: int) -> Self:
        """Begin another channel, with squares or without; nothing is lost yet."""
        self._n, self._done = n_sums, 0
        self.lost.forget()
        return self

    def add(self, add: Add) -> None:
        """Have something added to sums of shape (n_sums, n_gpus x n_hours), GPU after GPU."""
        add(self.whole().reshape(self._n, -1), self.lost)

    def add_by_hour(self, hours: tuple[int, int], add: Add) -> None:
        """Have something added to sums of shape (n_sums, n_hours x n_gpus), hour after hour.

        Parameters
        ----------
        hours : tuple of int
            The first hour, and one more than the last, of the cells that are added to.
        add : callable
            The sums that it is given begin with `LostReadings.first_cell`.
        """
        sums, (first, last) = self._sums[: self._n], hours
        n_gpus, again = sums.shape[1], min(last, self._done)
        by_hour = self._room(last - first, n_gpus)
        by_hour[:, : max(0, again - first)] = sums[:, :, first:again].transpose(0, 2, 1)
        add(by_hour.reshape(self._n, -1), self.lost._replace(first_cell=first * n_gpus))
        self._fill_up_to(first)
        in_gpu_order(by_hour, sums[:, :, first:last])
        self._done = max(self._done, last)

    def whole(self) -> DoubleArray:
        """Return all sums, shape (n_sums, n_gpus, n_hours): 0 where nothing was added."""
        self._fill_up_to(self._sums.shape[2])
        return self._sums[: self._n]

    def _fill_up_to(self, hour: int) -> None:
        """Put 0 into the hours before one that nothing was added to."""
        self._sums[: self._n, :, self._done : hour] = 0.0
        self._done = max(self._done, hour)

    def _room(self, n_hours: int, n_gpus: int) -> DoubleArray:
        size = self._n * n_hours * n_gpus
        if len(self._by_hour) < size:
            self._by_hour = np.empty(size)
        room = self._by_hour[:size].reshape(self._n, n_hours, n_gpus)
        room.fill(0.0)
        return room
