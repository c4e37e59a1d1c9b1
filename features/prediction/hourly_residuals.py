"""Hourly residuals: the means of one sensor less those that another one lets expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.residuals import ResidualFit
from forewarn.features.records.hourly_sums import HourlyGrid
from forewarn.features.threads import in_threads

__all__ = ["GpuTypes", "HourlyResiduals"]

Hourly = npt.NDArray[np.float64]


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

    def of_cells(self, grid: HourlyGrid) -> npt.NDArray[np.int64]:
        """Return the number of the type of each cell's GPU, -1 where it is unknown."""
        if self.name is None:
            return np.full(grid.size, -1, dtype=np.int64)
        number_of_type = {text: i for i, text in enumerate(self.texts)}
        texts = grid.records.texts[self.name].texts
        number = np.array([*(number_of_type.get(text, -1) for text in texts), -1], dtype=np.int64)
        return number[grid.group_of(self.name).ravel()]


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
    def fit(cls, pairs: tuple[tuple[str, str], ...], types: GpuTypes, grid: HourlyGrid) -> Self:
        """Fit every pair to the hours of a grid."""
        if not pairs:
            return cls(pairs, types, ())
        group = types.of_cells(grid)
        grid.keep({name for pair in pairs for name in pair})

        def fit(pair: tuple[str, str]) -> ResidualFit:
            y, x = (grid.sums(name, name).mean().ravel() for name in pair)
            return ResidualFit.fit(x, y, group, len(types.texts))

        return cls(pairs, types, tuple(in_threads(fit, pairs)))

    def of_hours(self, grid: HourlyGrid, pair: int) -> Hourly:
        """Return the hourly residuals of one pair.

        Parameters
        ----------
        grid : HourlyGrid
        pair : int
            Its number.

        Returns
        -------
        ndarray of shape (n_gpus, n_hours)
            NaN where either sensor is missing.
        """
        y, x = (grid.sums(name, name).mean() for name in self.pairs[pair])
        expected = self.fits[pair].expected(x.ravel(), self.types.of_cells(grid))
        return np.asarray(y - expected.reshape(y.shape))
