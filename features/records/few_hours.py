"""Hourly sums of a channel that counts: nearly all hours hold 0, and only the others are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled
from forewarn.features.records.spillable_array import ArrayAllocator, SpillableArray

__all__ = ["FewHours", "HourlyTally"]

_FEW = 8  # of so many cells one has something


@dataclass(frozen=True, slots=True)
class FewHours:
    """Numbers by GPU and hour of which most are 0.

    Attributes
    ----------
    n_hours : int
    cell : ndarray of shape (m,), int32 or int64
        GPU x `n_hours` + hour of the m numbers that are not 0, rising.
    value : ndarray of shape (m,)
    """

    n_hours: int
    cell: npt.NDArray[np.int64]
    value: npt.NDArray[Any]

    @classmethod
    def of(cls, hourly: npt.NDArray[Any]) -> FewHours:
        """Keep what is not 0 of an array of shape (n_gpus, n_hours)."""
        cell = np.flatnonzero(hourly)
        return cls(hourly.shape[1], cell, hourly.ravel()[cell])

    @classmethod
    def of_cells(
        cls,
        n_hours: int,
        parts: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[Any]]],
    ) -> FewHours:
        """Keep the numbers of some cells, each of which is in one part alone."""
        cell = np.concatenate([np.zeros(0, dtype=np.int64), *(cells for cells, _ in parts)])
        order = np.argsort(cell, kind="stable")
        value = np.concatenate([np.zeros(0, dtype=np.int32), *(values for _, values in parts)])
        return cls(n_hours, cell[order], value[order])

    @classmethod
    def joined(cls, parts: Sequence[tuple[FewHours, npt.NDArray[np.int64]]]) -> FewHours:
        """Return the hours of all slices of a fleet, each with the numbers of its GPUs there.

        Examples
        --------
        >>> few = FewHours.of(np.array([[0, 5], [6, 0]]))
        >>> whole = FewHours.joined([(few, np.array([1, 3])), (few, np.array([0, 2]))])
        >>> whole.cell.tolist(), whole.value.tolist()
        ([1, 3, 4, 6], [5, 5, 6, 6])
        """
        n_hours = parts[0][0].n_hours
        cells = [gpu[few.cell // n_hours] * n_hours + few.cell % n_hours for few, gpu in parts]
        cell = np.concatenate(cells)
        order = np.argsort(cell, kind="stable")
        return cls(n_hours, cell[order], np.concatenate([few.value for few, _ in parts])[order])

    def of_gpus(self, gpus: Sequence[int]) -> npt.NDArray[Any]:
        """Return the numbers of some GPUs, shape (len(gpus), n_hours)."""
        hourly = np.zeros((len(gpus), self.n_hours), dtype=self.value.dtype)
        for line, gpu in zip(hourly, gpus, strict=True):
            start = gpu * self.n_hours
            few = slice(*np.searchsorted(self.cell, [start, start + self.n_hours]))
            line[self.cell[few] - start] = self.value[few]
        return hourly


class HourlyTally:
    """Numbers added up by cell, one part after another: kept one by one as long as they are few.

    Parameters
    ----------
    shape : tuple of int
        Lines, such as groups of GPUs, and hours.
    zeros : callable
        Makes the array in which they are added up where they are many.

    Examples
    --------
    >>> tally = HourlyTally((2, 10))
    >>> tally.add(np.array([7, 12]), np.array([1.0, 5.0]))
    >>> tally.hours()
    FewHours(n_hours=10, cell=array([ 7, 12]), value=array([1., 5.]))
    >>> tally.add(np.array([7]), np.array([2.0]))
    >>> tally.hours()[:, [2, 7]].tolist()
    [[0.0, 3.0], [5.0, 0.0]]
    """

    def __init__(self, shape: tuple[int, int], zeros: ArrayAllocator = SpillableArray) -> None:
        self._shape, self._zeros, self._n = shape, zeros, 0
        self._parts: list[tuple[npt.NDArray[np.int64], npt.NDArray[Any]]] = []
        self._whole: SpillableArray | None = None

    def add(self, cell: npt.NDArray[np.int64], value: npt.NDArray[Any]) -> None:
        """Add numbers to those of their cells, one after another."""
        self._parts.append((cell, value))
        self._n += len(cell)
        if _FEW * self._n > self._shape[0] * self._shape[1]:
            self._whole = self._whole or self._zeros(self._shape, np.float64)
            for cells, values in self._parts:
                _add_to(self._whole.values.reshape(-1), cells, values)
            self._parts.clear()

    def spill(self) -> None:
        """Have an array of sums leave memory, if it can, until it is looked at again."""
        if self._whole is not None:
            self._whole.spill()

    def hours(self) -> FewHours | npt.NDArray[np.float64]:
        """Return the sums; as an array of that shape where they are many."""
        if self._whole is not None:
            return self._whole.values
        cells = np.concatenate([np.zeros(0, dtype=np.int64), *(cell for cell, _ in self._parts)])
        values = np.concatenate([np.zeros(0), *(value for _, value in self._parts)])
        cell, number = np.unique(cells, return_inverse=True)
        return FewHours(self._shape[1], cell, np.bincount(number, values, minlength=len(cell)))


@compiled
def _add_to(
    whole: npt.NDArray[np.float64], cells: npt.NDArray[np.int64], values: npt.NDArray[Any]
) -> None:
    for number in range(len(cells)):
        whole[cells[number]] += values[number]
