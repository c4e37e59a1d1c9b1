"""Criterion of a check, learned from healthy machines for a wanted rate of false alarms.

A fixed criterion such as "5 % below the mean" ignores how much healthy machines differ. Here each
group gives the start and the scale of its tail, the upper quarter of its distances (half in a small
group). How far a tail reaches is learned from all groups together, since a rate of one in a million
cannot be read off 40 machines: distances in units of the scale of their group are pooled, and the
farthest of them follow a generalised Pareto distribution, apart from those of defective units. Its
shape is not chosen but averaged over its posterior, so that a tail that may be heavy makes a wide
criterion, and no rate is used that is far beyond the data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array

__all__ = ["MIN_UNITS", "HealthyTail", "PooledTail", "healthy_units"]

MIN_UNITS: Final = 8
"""Units below which a group has no criterion of its own."""

_TAIL_SHARES: Final = (0.25, 0.5)  # the larger one in groups so small that the tail has few units
_MIN_TAIL_UNITS: Final = 25
_HEALTHY_BEYOND: Final = 0.1  # healthy units a group that may be left out as outliers, on average

_FAR_SHARES: Final = (0.02, 0.2)  # of all units: the smaller one where it has enough values
_FAR_VALUES: Final = (50, 1_000)  # at least, and enough
_SUSPECT_SHARE: Final = 0.02  # of all units: those that may be defective
_SUSPECT_VALUES: Final = (5, 60)
_DEFECT_SHARES: Final = np.geomspace(1e-4, 0.2, 10)  # of the far values, equally likely
_MAX_RATIO: Final = 1e3  # defective units are up to so far, at any ratio from 1 on
_SHAPES: Final = np.linspace(-0.31, 0.61, 47)  # without 0, which needs other formulas
_SHAPE_PRIOR: Final = (0.1, 0.1)  # two deviations: from normal (-0.1) to Student's t4 (0.25)
_LOG_SCALES: Final = np.linspace(-1.2, 1.2, 49)
_DISTANCES: Final = np.append(0.0, np.geomspace(0.02, 1e6, 160))
_CONFIDENCE: Final = 0.95
_EXTRAPOLATION: Final = 20.0
_TINY: Final = 1e-300


@dataclass(frozen=True, slots=True)
class HealthyTail:
    """Upper tail of the distances of the units of one group.

    Attributes
    ----------
    start : float
        Distance from which the tail begins.
    excesses : Float64Array
        By how much distances of healthy units exceed it; their mean is the scale.
    share : float
        Share of the healthy units in the tail.
    outliers : Float64Array
        By how much distances of outliers exceed it.
    """

    start: float
    excesses: Float64Array
    share: float
    outliers: Float64Array

    @classmethod
    def from_distances(cls, healthy: Float64Array, outliers: Float64Array) -> HealthyTail:
        """Return the tail of at least two healthy distances, and those of outliers."""
        few, many = (max(1, round(share * len(healthy))) for share in _TAIL_SHARES)
        n_tail = max(few, min(many, _MIN_TAIL_UNITS))
        ordered = np.sort(healthy)
        start = float(ordered[-n_tail - 1])
        return cls(start, ordered[-n_tail:] - start, n_tail / len(healthy), outliers - start)

    @property
    def units(self) -> int:
        """Return how many units the group has."""
        return round(len(self.excesses) / self.share) + len(self.outliers)

    @property
    def ratios(self) -> Float64Array:
        """Return excesses by the scale of the tail without them; empty if it has no scale.

        A unit is judged by a scale that it is no part of, which varies, as few units have it.
        """
        others = self.excesses.sum() - self.excesses
        if not (others > 0.0).all():
            return np.empty(0)
        inside = self.excesses / others * (len(self.excesses) - 1)
        outside = self.outliers / self.excesses.mean()
        return np.asarray(np.minimum(np.append(inside, outside), _MAX_RATIO))


@dataclass(frozen=True, slots=True)
class PooledTail:
    """Tail of the distances of all groups, in units of the scale of each group.

    Attributes
    ----------
    units : int
        Units it was learned from.
    ratios : Float64Array
    exceedances : Float64Array
        Probability that a healthy unit of the tail exceeds each ratio, averaged over what the tail
        may be.
    bounds : Float64Array
        The same probability, with a confidence of 95 %.
    """

    units: int
    ratios: Float64Array
    exceedances: Float64Array
    bounds: Float64Array

    @classmethod
    def from_tails(cls, tails: Sequence[HealthyTail]) -> PooledTail:
        """Fit the tail of the far distances of all groups."""
        by_group = [tail.ratios for tail in tails]
        units = sum(t.units for t, known in zip(tails, by_group, strict=True) if len(known))
        ratios = np.sort(np.concatenate([np.empty(0), *by_group]))
        few, many = (round(share * units) for share in _FAR_SHARES)
        n_far = min(len(ratios), max(_FAR_VALUES[0], min(many, max(_FAR_VALUES[1], few))))
        start = float(ratios[-n_far - 1]) if n_far < len(ratios) else 0.0
        least, most = _SUSPECT_VALUES
        n_suspects = min(n_far // 2, max(least, min(most, round(_SUSPECT_SHARE * units))))
        scales, weights = _posterior(ratios[len(ratios) - n_far :], start, n_suspects)
        beyond = _survival(_DISTANCES[:, None, None] / scales)
        share = n_far / len(ratios) if n_far else 1.0
        return cls(
            units,
            start + _DISTANCES,
            np.maximum(share * (beyond * weights).sum(axis=(1, 2)), _TINY),
            np.maximum(share * _upper_quantiles(beyond, weights), _TINY),
        )

    def supported_rate(self, rate: float) -> float:
        """Return a rate of false alarms, or the lowest that the units support.

        Healthy units show rates down to one in their number; the tail extends that 20 times.
        """
        return max(rate, 1.0 / (_EXTRAPOLATION * self.units)) if self.units else rate

    def limit(self, tail: HealthyTail, rate: float) -> float:
        """Return the distance that a healthy unit of a group exceeds with a probability of `rate`.

        Parameters
        ----------
        tail : HealthyTail
            Of the group.
        rate : float
            Above 0; of at least the share of the far distances, the limit is where these begin.
        """
        ratio = np.interp(-np.log(rate / tail.share), -np.log(self.exceedances), self.ratios)
        return tail.start + float(tail.excesses.mean()) * float(ratio)

    def bound(self, rate: float) -> float:
        """Return the rate that limits for `rate` do not exceed, with a confidence of 95 %."""
        share = max(_TAIL_SHARES)
        log_bound = np.interp(
            -np.log(rate / share), -np.log(self.exceedances), -np.log(self.bounds)
        )
        return float(max(rate, share * np.exp(-log_bound)))


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
    tail = HealthyTail.from_distances(distances[judged], np.empty(0))
    scale = float(np.median(tail.excesses)) / math.log(2.0)
    outlier_ratio = max(1.0, len(tail.excesses) / _HEALTHY_BEYOND)
    return judged & (distances <= tail.start + scale * math.log(outlier_ratio))


def _survival(scaled: Float64Array) -> Float64Array:
    """Return the probability to exceed excesses by the scale, for each shape.

    Parameters
    ----------
    scaled : Float64Array of shape (n, 1, n_scales)

    Returns
    -------
    Float64Array of shape (n, n_shapes, n_scales)
    """
    shapes = _SHAPES[:, None]
    with np.errstate(divide="ignore"):
        return np.asarray(np.exp(-np.log(np.maximum(1.0 + shapes * scaled, 0.0)) / shapes))


def _posterior(
    far: Float64Array, start: float, n_suspects: int
) -> tuple[Float64Array, Float64Array]:
    """Return scales, and the weight of each shape and scale.

    Parameters
    ----------
    far : Float64Array
        Ordered ratios from `start` on.
    start : float
    n_suspects : int
        How many of the last of them may be defective: they are of a mixture of the tail and of a
        flat distribution of the logarithm.
    """
    excesses = far - start
    median = float(np.median(excesses)) if len(far) else 0.0
    log_scales = math.log(median / math.log(2.0) if median else 1.0) + _LOG_SCALES
    scales = np.exp(log_scales)
    n_others = len(far) - n_suspects
    suspects = np.maximum(far[n_others:, None], 1.0)
    of_defects = (far[n_others:, None] > 1.0) / (suspects * math.log(_MAX_RATIO))
    shares = _DEFECT_SHARES[:, None, None]
    mean, deviation = _SHAPE_PRIOR
    logs = np.empty((len(shares), len(_SHAPES), len(scales)))
    for number, shape in enumerate(_SHAPES):
        with np.errstate(divide="ignore"):
            steps = np.log(np.maximum(1.0 + shape * excesses[:, None] / scales, 0.0))
        density = -(1.0 + 1.0 / shape) * steps - log_scales
        mixed = (1.0 - shares) * np.exp(density[n_others:]) + shares * of_defects
        logs[:, number] = density[:n_others].sum(axis=0) + n_others * np.log1p(-shares[:, 0])
        logs[:, number] += np.log(np.maximum(mixed, _TINY)).sum(axis=1)
        logs[:, number] -= 0.5 * ((shape - mean) / deviation) ** 2
    weights = np.exp(logs - logs.max()).sum(axis=0)
    return scales, weights / weights.sum()


def _upper_quantiles(values: Float64Array, weights: Float64Array) -> Float64Array:
    """Return the weighted quantile of each row of values, of shape (n, n_shapes, n_scales)."""
    flat = values.reshape(len(values), -1)
    order = np.argsort(flat, axis=1)
    sums = np.cumsum(weights.ravel()[order], axis=1)
    columns = np.minimum((sums < _CONFIDENCE).sum(axis=1), flat.shape[1] - 1)
    rows = np.arange(len(flat))
    return np.asarray(flat[rows, order[rows, columns]])
