"""Hourly residuals: the means of one sensor less those that another one lets expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.history import InstanceHistory
from forewarn.features.prediction.residuals import RESIDUAL_SAMPLE, ResidualFit
from forewarn.features.records.hourly_sums import HourlyGrid
from forewarn.features.threads import in_threads

__all__ = ["GpuTypes", "HourlyResiduals", "SliceMeans"]

Hourly = npt.NDArray[np.float64]
Means = Mapping[str, npt.NDArray[np.floating]]
_GPUS_AT_ONCE = 1024  # what is made on the way must not grow with the fleet


class SliceMeans(NamedTuple):
    """The hourly means of a slice of a fleet.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Which of all instances are of this slice.
    gpu : ndarray of shape (n_gpus,)
        The number that each GPU has in the fleet.
    history : InstanceHistory
        Of these instances; what each record takes is let go of.
    means : dict of ndarray of shape (n_gpus, n_hours), float32
        Of each column that residuals are made of.
    """

    rows: npt.NDArray[np.int64]
    gpu: npt.NDArray[np.int64]
    history: InstanceHistory
    means: Means


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
        cls, pairs: tuple[tuple[str, str], ...], types: GpuTypes, slices: Sequence[SliceMeans]
    ) -> Self:
        """Fit every pair to the hours of all slices, a sample of which is taken by GPU and hour."""
        groups = [types.of_cells(part.history.grid) for part in slices] if pairs else []

        def fit(pair: tuple[str, str]) -> ResidualFit:
            sampled = _sampled(pair, slices, groups)
            return ResidualFit.fit(*sampled, len(types.texts))

        return cls(pairs, types, tuple(in_threads(fit, pairs)))

    def of_hours(self, grid: HourlyGrid, pair: int, means: Means) -> Hourly:
        """Return the hourly residuals of one pair.

        Parameters
        ----------
        grid : HourlyGrid
        pair : int
            Its number.
        means : mapping of ndarray of shape (n_gpus, n_hours), float32
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


def _sampled(
    pair: tuple[str, str], slices: Sequence[SliceMeans], groups: Sequence[npt.NDArray[np.int32]]
) -> tuple[Hourly, Hourly, npt.NDArray[np.int32]]:
    """Return x, y and group of every so-manieth hour in which both sensors of a pair are known.

    Hours are counted by GPU of the fleet: the sample is the same for any number of slices.
    """
    known = [np.isfinite(part.means[pair[0]]) & np.isfinite(part.means[pair[1]]) for part in slices]
    n_known = np.zeros(sum(len(part.gpu) for part in slices), dtype=np.int64)
    for part, both in zip(slices, known, strict=True):
        n_known[part.gpu] = both.sum(axis=1)
    before = np.cumsum(n_known) - n_known
    step = max(1, int(n_known.sum()) // RESIDUAL_SAMPLE)
    taken = []
    for part, both, group in zip(slices, known, groups, strict=True):
        cells, n_here = np.flatnonzero(both), n_known[part.gpu]
        skipped = before[part.gpu] - (np.cumsum(n_here) - n_here)
        rank = np.arange(len(cells)) + np.repeat(skipped, n_here)
        chosen = rank % step == 0
        y, x = (part.means[name].ravel()[cells[chosen]] for name in pair)
        taken.append((rank[chosen], x, y, group.ravel()[cells[chosen]]))
    rank, x, y, group = (np.concatenate(values) for values in zip(*taken, strict=True))
    order = np.argsort(rank)
    return x[order], y[order], group[order]
