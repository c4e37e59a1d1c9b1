"""Hourly residuals: hourly means of a sensor minus the values expected from another sensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from forewarn.features.array_types import (
    Float32Array,
    Float64Array,
    FloatingArray,
    Int32Array,
    Int64Array,
)
from forewarn.features.compiled import compiled
from forewarn.features.prediction.instance_history import InstanceHistory
from forewarn.features.prediction.residuals import RESIDUAL_SAMPLE, ResidualFit
from forewarn.features.records.hourly_sums import HourlyGrid, HourlySums
from forewarn.features.records.text_columns import map_texts
from forewarn.features.threads import map_threads

__all__ = ["GpuTypes", "HourlyResiduals", "SliceMeans", "hourly_means"]

Means = Mapping[str, Float32Array]


class SliceMeans(NamedTuple):
    """Hourly means of a slice of a fleet.

    Attributes
    ----------
    rows : ndarray of shape (n,)
        Numbers of the slice's instances among all instances.
    gpu : ndarray of shape (n_gpus,)
        Number of each GPU in the fleet.
    history : InstanceHistory
        History of these instances, without per-record data.
    means : dict of ndarray of shape (n_gpus, n_hours), float32
        Means of each column used in residuals.
    """

    rows: Int64Array
    gpu: Int64Array
    history: InstanceHistory
    means: Means


def hourly_means(hours: HourlySums) -> Float32Array:
    """Return the means of a level, shape (n_gpus, n_hours); NaN without readings."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (hours.total / hours.count).astype(np.float32)


@dataclass(frozen=True, slots=True)
class GpuTypes:
    """The GPU types with their own offset.

    Attributes
    ----------
    name : str or None
        Column of the type; None if all GPUs count as one type.
    texts : tuple of str
        Types seen in training.
    """

    name: str | None
    texts: tuple[str, ...] = ()

    def for_cells(self, grid: HourlyGrid, cell: Int64Array) -> Int32Array:
        """Return the type number of some cells that have rows; -1 is unknown."""
        if self.name is None:
            return np.full(len(cell), -1, dtype=np.int32)
        return self._numbers(grid)[grid.groups(self.name).at(cell)]

    def for_gpus(self, grid: HourlyGrid) -> tuple[Int32Array, Int64Array, Int32Array]:
        """Return the type number of each GPU; -1 is unknown.

        Returns
        -------
        ndarray of shape (n_gpus,)
            Type numbers of GPUs with a single type.
        ndarray of shape (m,)
            GPUs with several types.
        ndarray of shape (m, n_hours)
            Type numbers of their cells.
        """
        if self.name is None:
            n_gpus, n_hours = grid.shape
            none = np.zeros((0, n_hours), dtype=np.int32)
            return np.full(n_gpus, -1, dtype=np.int32), np.zeros(0, dtype=np.int64), none
        number, groups = self._numbers(grid), grid.groups(self.name)
        of_cells = number[np.maximum(groups.group, -1)]
        return number[groups.home], np.flatnonzero(groups.line >= 0), of_cells

    def _numbers(self, grid: HourlyGrid) -> Int32Array:
        """Return the type number of each text of the column, followed by -1."""
        number_of_type = {text: i for i, text in enumerate(self.texts)}
        return map_texts(grid.records.texts[str(self.name)].texts, number_of_type)


@dataclass(frozen=True, slots=True)
class HourlyResiduals:
    """Fitted pairs of sensors: the second predicts the first.

    Attributes
    ----------
    pairs : tuple of (str, str)
    types : GpuTypes
    fits : tuple of ResidualFit
        One per pair.
    """

    pairs: tuple[tuple[str, str], ...]
    types: GpuTypes
    fits: tuple[ResidualFit, ...]

    @classmethod
    def fit(
        cls, pairs: tuple[tuple[str, str], ...], types: GpuTypes, slices: Sequence[SliceMeans]
    ) -> Self:
        """Fit every pair to a sample of the hours of all slices."""

        def fit(pair: tuple[str, str]) -> ResidualFit:
            return ResidualFit.fit(*_sample_pairs(pair, slices, types), len(types.texts))

        return cls(pairs, types, tuple(map_threads(fit, pairs)))

    def hourly_residuals(self, grid: HourlyGrid, pair: int, means: Means) -> Float64Array:
        """Return the hourly residuals of a pair, shape (n_gpus, n_hours).

        Parameters
        ----------
        grid : HourlyGrid
        pair : int
            Number of the pair.
        means : mapping of ndarray of shape (n_gpus, n_hours), float32
            Hourly means of each column.

        Returns
        -------
        ndarray of shape (n_gpus, n_hours)
            NaN where either sensor is missing.
        """
        (y, x), fit = (means[name] for name in self.pairs[pair]), self.fits[pair]
        kind, changed, kinds = self.types.for_gpus(grid)
        left = y - fit.expected(x, np.broadcast_to(kind[:, None], x.shape))
        left[changed] = y[changed] - fit.expected(x[changed], kinds)
        return np.asarray(left)


def _sample_pairs(
    pair: tuple[str, str], slices: Sequence[SliceMeans], types: GpuTypes
) -> tuple[Float64Array, Float64Array, Int32Array]:
    """Return x, y and type of a systematic sample of the hours with both sensors.

    Hours are counted in fleet order, so the sample does not depend on the number of slices.
    """
    n_known = np.zeros(sum(len(part.gpu) for part in slices), dtype=np.int64)
    for part in slices:
        n_here = np.empty(len(part.gpu), dtype=np.int64)
        _count_known(*_pair_means(pair, part), n_here)
        n_known[part.gpu] = n_here
    before = np.cumsum(n_known) - n_known
    step = max(1, int(n_known.sum()) // RESIDUAL_SAMPLE)
    until, so_far = (-(-number // step) for number in (before + n_known, before))  # rounded up
    n_taken = until - so_far
    taken = []
    for part in slices:
        rank, cells = np.empty((2, n_taken[part.gpu].sum()), dtype=np.int64)
        _fill_sample(*_pair_means(pair, part), before[part.gpu], step, rank, cells)
        y, x = (means.ravel()[cells] for means in _pair_means(pair, part))
        taken.append((rank, x, y, types.for_cells(part.history.grid, cells)))
    rank, x, y, group = (np.concatenate(values) for values in zip(*taken, strict=True))
    order = np.argsort(rank)
    return x[order], y[order], group[order]


def _pair_means(pair: tuple[str, str], part: SliceMeans) -> tuple[FloatingArray, FloatingArray]:
    """Return the means of both sensors of a pair, shape (n_gpus, n_hours)."""
    y, x = (part.means[name] for name in pair)
    return y, x


@compiled
def _count_known(y: FloatingArray, x: FloatingArray, n_known: Int64Array) -> None:
    """Count the hours of each GPU with both sensors."""
    for gpu in range(len(y)):
        n_known[gpu] = 0
        for hour in range(y.shape[1]):
            n_known[gpu] += np.isfinite(y[gpu, hour]) and np.isfinite(x[gpu, hour])


@compiled
def _fill_sample(
    y: FloatingArray,
    x: FloatingArray,
    before: Int64Array,
    step: int,
    rank: Int64Array,
    cell: Int64Array,
) -> None:
    """Fill `rank` and `cell` with every `step`-th hour with both sensors.

    `before` is the number of such hours of all preceding GPUs.
    """
    n = 0
    for gpu in range(len(y)):
        so_far = before[gpu]
        for hour in range(y.shape[1]):
            if np.isfinite(y[gpu, hour]) and np.isfinite(x[gpu, hour]):
                if so_far % step == 0:
                    rank[n], cell[n] = so_far, gpu * y.shape[1] + hour
                    n += 1
                so_far += 1
