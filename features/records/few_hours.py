"""Hourly sums of a channel that counts: nearly all hours hold 0, and only the others are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FewHours"]


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

    def of_gpus(self, gpus: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return the numbers of some GPUs, shape (len(gpus), n_hours)."""
        hourly = np.zeros((len(gpus), self.n_hours), dtype=self.value.dtype)
        for line, gpu in zip(hourly, gpus.tolist(), strict=True):
            start = gpu * self.n_hours
            few = slice(*np.searchsorted(self.cell, [start, start + self.n_hours]))
            line[self.cell[few] - start] = self.value[few]
        return hourly
