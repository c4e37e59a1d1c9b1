"""Criterion of a check, learned from healthy machines for a wanted rate of false alarms.

A fixed criterion such as "5 % below the mean" ignores how much healthy machines differ. Here the
upper quarter of the healthy distances (half in a small group) is a generalised Pareto tail: its
scale is that of the group, its shape is shared by all checks, since a rate of one in a million
cannot be read off 40 machines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array

__all__ = ["MIN_UNITS", "HealthyTail", "healthy_units", "shared_shape"]

MIN_UNITS: Final = 8
"""Units below which a group has no criterion of its own."""

_TAIL_SHARES: Final = (0.25, 0.5)  # the larger one in groups so small that the tail has few units
_MIN_TAIL_UNITS: Final = 25
_HEALTHY_BEYOND: Final = 0.1  # healthy units a group that may be left out as outliers, on average
_SHAPE_GRID: Final = np.linspace(-0.1, 0.4, 21)  # lighter is not credible so far out
_LOG_SCALES: Final = np.linspace(-3.0, 3.0, 61)
_IMPOSSIBLE: Final = 1e-300
_MAX_GROUP_EXCESSES: Final = 200
_MIN_EXCESSES: Final = 200  # below it the tail counts as exponential


@dataclass(frozen=True, slots=True)
class HealthyTail:
    """Upper tail of the distances of healthy units.

    Attributes
    ----------
    start : float
        Distance from which the tail begins.
    excesses : Float64Array
        By how much distances exceed it.
    share : float
        Share of the healthy units in the tail.
    """

    start: float
    excesses: Float64Array
    share: float

    @classmethod
    def from_distances(cls, distances: Float64Array) -> HealthyTail:
        """Return the tail of at least two distances."""
        few, many = (max(1, round(share * len(distances))) for share in _TAIL_SHARES)
        n_tail = max(few, min(many, _MIN_TAIL_UNITS))
        ordered = np.sort(distances)
        start = float(ordered[-n_tail - 1])
        return cls(start, ordered[-n_tail:] - start, n_tail / len(distances))

    def limit(self, rate: float, shape: float) -> float:
        """Return the distance that a healthy unit exceeds with a probability of `rate`.

        The scale is estimated from few excesses, which makes their predictive distribution
        heavier: an exponential with a mean of k values is a Pareto with the shape 1/k (Lomax).

        Parameters
        ----------
        rate : float
            Above 0 and below the share of the tail.
        shape : float
            Of `shared_shape`.
        """
        scale = float(self.excesses.mean()) * (1.0 - shape)
        predictive = shape + 1.0 / len(self.excesses)
        ratio = self.share / rate
        if abs(predictive) < 1e-9:
            return self.start + scale * math.log(ratio)
        return self.start + scale / predictive * math.expm1(predictive * math.log(ratio))


def healthy_units(distances: Float64Array, judged: BoolArray) -> BoolArray:
    """Tell which units are no outliers of a group.

    Parameters
    ----------
    distances : Float64Array
        Of the whole group. The scale of their tail is taken from its median, which up to an eighth
        of the units cannot move far.
    judged : BoolArray
        Units that belong to the group, at least two.
    """
    tail = HealthyTail.from_distances(distances[judged])
    scale = float(np.median(tail.excesses)) / math.log(2.0)
    outlier_ratio = max(1.0, len(tail.excesses) / _HEALTHY_BEYOND)
    return judged & (distances <= tail.start + scale * math.log(outlier_ratio))


def shared_shape(tails: Sequence[HealthyTail]) -> float:
    """Return the shape of the tails of all checks, 0 (exponential) while too little is known.

    Posterior mean on a grid, with the scale of each group integrated out: the many scales would
    bias a maximum of the likelihood. Only the upper half of the excesses counts, since a shape is
    one of far distances.
    """
    usable = [_upper(tail.excesses) for tail in tails]
    groups = [excesses for excesses in usable if len(excesses) > 1 and excesses.mean() > 0]
    if sum(map(len, groups)) < _MIN_EXCESSES:
        return 0.0
    likelihood = np.sum([_shape_likelihood(excesses) for excesses in groups], axis=0)
    weights = np.exp(likelihood - likelihood.max())
    return float(np.average(_SHAPE_GRID, weights=weights))


def _upper(excesses: Float64Array) -> Float64Array:
    """Return the upper half of ordered excesses, as excesses over its start."""
    half = len(excesses) // 2
    upper = excesses[half:] - (excesses[half - 1] if half else 0.0)
    return upper[:: max(1, len(upper) // _MAX_GROUP_EXCESSES)]


def _shape_likelihood(excesses: Float64Array) -> Float64Array:
    """Return the log likelihood of one group for each shape, over a flat prior of log scale."""
    scaled = (excesses / excesses.mean())[:, None] / np.exp(_LOG_SCALES)
    rows = []
    for shape in _SHAPE_GRID:
        base = 1.0 + shape * scaled
        if abs(shape) < 1e-9:
            logs = -scaled
        else:
            logs = -(1.0 / shape + 1.0) * np.log(np.maximum(base, _IMPOSSIBLE))
        by_scale = np.where(base.min(axis=0) > 0, logs.sum(axis=0), -np.inf)
        by_scale -= len(excesses) * _LOG_SCALES
        rows.append(np.logaddexp.reduce(by_scale))
    return np.array(rows)
