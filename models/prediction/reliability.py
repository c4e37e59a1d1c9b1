"""Agreement of predicted probabilities with observed outcomes, computed part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import Float64Array, Int8Array, Int64Array, UInt64Array
from forewarn.models.prediction.linear.log_odds import logit, sigmoid
from forewarn.models.prediction.linear.logistic_fit import RegressionData, posterior_mode

__all__ = [
    "Judged",
    "LabelledProbabilities",
    "ReliabilityBin",
    "calibration_slope",
    "order_statistics",
    "reliability",
    "slope_draws",
]

_DIGIT_BITS = 16  # bits per radix digit
_N_DIGITS = 1 << _DIGIT_BITS

_NO_PRIOR_SD = 1e3


class LabelledProbabilities(NamedTuple):
    """Predicted probabilities and labels of some rows.

    Attributes
    ----------
    probabilities, labels : ndarray of shape (n,)
    machine : ndarray of shape (n,)
        Number of each row's machine, consistent over all parts.
    """

    probabilities: Float64Array
    labels: Int8Array
    machine: Int64Array


Judged = Iterable[LabelledProbabilities]
"""Probabilities and labels, part by part. Iterated several times, so it must not be a generator."""


def calibration_slope(judged: Judged) -> tuple[float, float]:
    """Return slope and intercept of a logistic regression of the labels on the log odds.

    Perfect probabilities give 1 and 0. A slope below 1 means overconfident probabilities, a slope
    above 1 underconfident ones. With a slope of 1, a negative intercept means that they are too
    high.

    Parameters
    ----------
    judged : iterable of LabelledProbabilities

    Raises
    ------
    ValueError
        If all labels or all probabilities are equal.
    """
    for name in ("labels", "probabilities"):
        if len({extreme for part in judged for extreme in _extremes(getattr(part, name))}) < 2:
            raise ValueError(f"`{name}` must hold at least two values, got one.")
    # The prior is practically flat but keeps the slope of perfectly separated classes finite.
    slope, intercept = posterior_mode(
        _LogOdds(judged), np.array([1.0, 0.0]), np.full(2, _NO_PRIOR_SD)
    )
    return float(slope), float(intercept)


def slope_draws(judged: Judged, line: tuple[float, float], draws: Float64Array) -> Float64Array:
    """Return the calibration slope of each bootstrap draw of machines.

    Uses one Newton step from the slope of all data. A draw changes little compared with the
    curvature of the likelihood, and each draw costs only a 2 x 2 system.

    Parameters
    ----------
    judged : iterable of LabelledProbabilities
    line : (float, float)
        Result of `calibration_slope` for them.
    draws : ndarray of shape (n_draws, n_machines)
        How often each machine is drawn.

    Returns
    -------
    ndarray of shape (n_draws,)
        NaN for a draw that determines no slope.
    """
    n, coefficients = draws.shape[1], np.array(line)
    ascent, curvature = np.zeros((n, 2)), np.zeros((n, 3))
    for probabilities, labels, machine in judged:
        log_odds = logit(probabilities)
        expected = sigmoid(coefficients[1] + coefficients[0] * log_odds)
        for power in range(2):
            missing = (labels - expected) * log_odds ** (1 - power)
            ascent[:, power] += np.bincount(machine, missing, minlength=n)
        for power in range(3):
            weight = expected * (1.0 - expected) * log_odds ** (2 - power)
            curvature[:, power] += np.bincount(machine, weight, minlength=n)
    (up, up_both), (bent, mixed, flat) = (draws @ ascent).T, (draws @ curvature).T
    with np.errstate(invalid="ignore", divide="ignore"):
        step = (flat * up - mixed * up_both) / (bent * flat - mixed**2)
    return np.asarray(np.where(np.isfinite(step), coefficients[0] + step, np.nan))


def _extremes(values: Float64Array | Int8Array) -> tuple[float, ...]:
    return (float(values.min()), float(values.max())) if len(values) else ()


@dataclass(frozen=True, slots=True)
class _LogOdds:
    """The regression data of probabilities and labels, part by part."""

    judged: Judged

    def __iter__(self) -> Iterator[RegressionData]:
        for probabilities, labels, _ in self.judged:
            log_odds = logit(probabilities)
            same = np.ones_like(log_odds)
            yield RegressionData(
                np.stack([log_odds, same], axis=1), labels.astype(np.float64), same
            )


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Instances of similar probability and their outcomes.

    Attributes
    ----------
    low, high : float
        Lowest and highest probability in the bin.
    mean_probability : float
    observed : float
        Share of positives.
    count, positives : int
    """

    low: float
    high: float
    mean_probability: float
    observed: float
    count: int
    positives: int


def reliability(judged: Judged, n_bins: int = 10) -> tuple[ReliabilityBin, ...]:
    """Group instances by probability, lowest first; each bin takes half of the remaining ones.

    The lowest bin holds the lower half, the next a quarter, and so on; the highest bin has about
    the size of the one before it. Most instances are healthy, and the upper tail matters most.
    Equal probabilities stay together, so there may be fewer than `n_bins` bins. With more than
    log2(n / 50) bins, the highest ones hold too few instances.

    Parameters
    ----------
    judged : iterable of LabelledProbabilities
    n_bins : int

    Examples
    --------
    >>> labels = np.array([0, 0, 0, 0, 0, 1, 1, 1], np.int8)
    >>> bins = reliability([LabelledProbabilities(np.arange(8) / 10, labels, np.arange(8))], 3)
    >>> [(b.low, b.high, b.count, b.positives) for b in bins]
    [(0.0, 0.3, 4, 0), (0.4, 0.5, 2, 1), (0.6, 0.7, 2, 2)]
    """
    if n_bins < 1:
        raise ValueError(f"`n_bins` must be at least 1, got {n_bins}.")
    n = sum(len(part.probabilities) for part in judged)
    if not n:
        return ()
    ranks = np.ceil((n - 1) * (1.0 - 0.5 ** np.arange(1, n_bins))).astype(np.int64)
    edges = order_statistics(_Probabilities(judged), ranks)
    heaps = [_OpenBin() for _ in range(n_bins)]
    for probabilities, labels, _ in judged:
        members = np.searchsorted(edges, probabilities, side="right")
        for member in np.unique(members).tolist():
            heaps[member].add(probabilities[members == member], labels[members == member])
    return tuple(heap.to_bin() for heap in heaps if heap.count)


@dataclass(frozen=True, slots=True)
class _Probabilities:
    judged: Judged

    def __iter__(self) -> Iterator[Float64Array]:
        return (part.probabilities for part in self.judged)


@dataclass(slots=True)
class _OpenBin:
    """Running totals of a bin."""

    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    count: int = 0
    positives: int = 0

    def add(self, probabilities: Float64Array, labels: Int8Array) -> None:
        self.low = min(self.low, float(probabilities.min()))
        self.high = max(self.high, float(probabilities.max()))
        self.total += float(probabilities.sum())
        self.count += len(labels)
        self.positives += int(labels.sum())

    def to_bin(self) -> ReliabilityBin:
        return ReliabilityBin(
            low=self.low,
            high=self.high,
            mean_probability=self.total / self.count,
            observed=self.positives / self.count,
            count=self.count,
            positives=self.positives,
        )


def order_statistics(parts: Iterable[Float64Array], ranks: Int64Array) -> Float64Array:
    """Return the values at `ranks` in the sorted sequence of all parts.

    The bits of non-negative floats sort like the floats themselves. A radix selection with four
    passes over the parts finds four 16-bit digits of each value.

    Parameters
    ----------
    parts : iterable of ndarray
        Iterated four times. No value is negative or NaN.
    ranks : ndarray of shape (n_ranks,)
        From 0, below the total number of values.

    Examples
    --------
    >>> order_statistics([np.array([0.5, 0.1]), np.array([0.3])], np.array([0, 2])).tolist()
    [0.1, 0.5]
    """
    left = np.array(ranks, dtype=np.int64)
    known = np.zeros(len(left), dtype=np.uint64)
    for shift in range(64 - _DIGIT_BITS, -1, -_DIGIT_BITS):
        heads, which = np.unique(known, return_inverse=True)
        up_to = _counts(parts, heads, np.uint64(shift)).cumsum(axis=1)
        for i, row in enumerate(which.tolist()):
            digit = int(np.searchsorted(up_to[row], left[i], side="right"))
            left[i] -= up_to[row, digit - 1] if digit else 0
            known[i] = (known[i] << np.uint64(_DIGIT_BITS)) | np.uint64(digit)
    return known.view(np.float64)


def _counts(parts: Iterable[Float64Array], heads: UInt64Array, shift: np.uint64) -> Int64Array:
    """Count the next digits of the values for each prefix of bits."""
    counts = np.zeros((len(heads), _N_DIGITS), dtype=np.int64)
    for values in parts:
        bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
        digits = bits >> shift
        before = digits >> np.uint64(_DIGIT_BITS)
        for row, head in enumerate(heads):
            following = digits[before == head] & np.uint64(_N_DIGITS - 1)
            counts[row] += np.bincount(following.astype(np.int64), minlength=_N_DIGITS)
    return counts
