"""Hourly residuals: the means of one sensor less those that another one lets expect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.residuals import ResidualFit
from forewarn.features.records.hourly_sums import HourlyGrid
from forewarn.features.threads import in_threads

__all__ = ["GpuTypes", "HourlyResiduals"]

Hourly = npt.NDArray[np.float64]
Means = Mapping[str, Hourly]
_GPUS_AT_ONCE = 1024  # what is made on the way must not grow with the fleet


@dataclass(frozen=True, slots=True)
class GpuTypes:
    """The types of GPU that have an offset of their own.

    Attributes
    ----------
    name : str or None
        The column that holds the type; None if all GPUs are taken for one type.
    texts : tuple of str
        Types that occurred in training.
    """

    name: str | None
    texts: tuple[str, ...] = ()

    def of_cells(self, grid: HourlyGrid) -> npt.NDArray[np.int32]:
        """Return the number of the type of each cell's GPU, shape of the grid; -1 is unknown."""
        if self.name is None:
            return np.full(grid.shape, -1, dtype=np.int32)
        number_of_type = {text: i for i, text in enumerate(self.texts)}
        texts = grid.records.texts[self.name].texts
        number = np.array([*(number_of_type.get(text, -1) for text in texts), -1], dtype=np.int32)
        return number[grid.group_of(self.name)]


@dataclass(frozen=True, slots=True)
class HourlyResiduals:
    """Fitted pairs of sensors: the first one is expected from the second.

    Attributes
    ----------
    pairs : tuple of (str, str)
    types : GpuTypes
    fits : tuple of ResidualFit
        One for each pair.
    """

    pairs: tuple[tuple[str, str], ...]
    types: GpuTypes
    fits: tuple[ResidualFit, ...]

    @classmethod
    def fit(
        cls, pairs: tuple[tuple[str, str], ...], types: GpuTypes, grid: HourlyGrid, means: Means
    ) -> Self:
        """Fit every pair to the hours of a grid; `means` holds those of each column."""
        if not pairs:
            return cls(pairs, types, ())
        group = types.of_cells(grid).ravel()

        def fit(pair: tuple[str, str]) -> ResidualFit:
            y, x = (means[name].ravel() for name in pair)
            return ResidualFit.fit(x, y, group, len(types.texts))

        return cls(pairs, types, tuple(in_threads(fit, pairs)))

    def of_hours(self, grid: HourlyGrid, pair: int, means: Means) -> Hourly:
        """Return the hourly residuals of one pair.

        Parameters
        ----------
        grid : HourlyGrid
        pair : int
            Its number.
        means : mapping of ndarray of shape (n_gpus, n_hours)
            Hourly means of each column.

        Returns
        -------
        ndarray of shape (n_gpus, n_hours)
            NaN where either sensor is missing.
        """
        y, x = (means[name] for name in self.pairs[pair])
        group, left = self.types.of_cells(grid), np.empty(grid.shape)
        for first in range(0, len(left), _GPUS_AT_ONCE):
            gpus = slice(first, first + _GPUS_AT_ONCE)
            left[gpus] = y[gpus] - self.fits[pair].expected(x[gpus], group[gpus])
        return left
