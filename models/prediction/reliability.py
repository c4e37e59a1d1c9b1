"""How well probabilities agree with what happened; read part by part, more than once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.models.prediction.log_odds import logit
from forewarn.models.prediction.logistic_maximum import Evidence, maximum
from forewarn.models.prediction.order_statistics import order_statistics

__all__ = ["Judged", "ReliabilityBin", "calibration_slope", "reliability"]

_NO_PRIOR_SD = 1e3

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Judged = Iterable[tuple[Floats, Labels]]
"""Probabilities and labels, part by part. Iterated several times, so it is no generator."""


def calibration_slope(judged: Judged) -> tuple[float, float]:
    """Return slope and intercept of a logistic regression of the labels on the log odds.

    1 and 0 for perfect probabilities. A slope below 1 says that they are too extreme, one above 1
    that they are too timid; with a slope of 1 a negative intercept says that they are too high.

    Parameters
    ----------
    judged : iterable of (probabilities, labels), each ndarray of shape (n,)

    Raises
    ------
    ValueError
        If there is one label only, or all probabilities are equal.
    """
    for number, name in ((1, "labels"), (0, "probabilities")):
        if len({extreme for part in judged for extreme in _extremes(part[number])}) < 2:
            raise ValueError(f"`{name}` must hold at least two values, got one.")
    # So wide a prior says nothing, but keeps the slope of perfectly separated classes finite.
    slope, intercept = maximum(_LogOdds(judged), np.array([1.0, 0.0]), np.full(2, _NO_PRIOR_SD))
    return float(slope), float(intercept)


def _extremes(values: Floats | Labels) -> tuple[float, ...]:
    return (float(values.min()), float(values.max())) if len(values) else ()


@dataclass(frozen=True, slots=True)
class _LogOdds:
    """What a logistic regression takes of probabilities and labels."""

    judged: Judged

    def __iter__(self) -> Iterator[Evidence]:
        for probabilities, labels in self.judged:
            log_odds = logit(probabilities)
            same = np.ones_like(log_odds)
            yield Evidence(np.stack([log_odds, same], axis=1), labels.astype(np.float64), same)


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Instances of similar probability, and what became of them.

    Attributes
    ----------
    low, high : float
        Least and greatest probability in the bin.
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
    """Group instances by probability, lowest first, each bin with about half of what is left.

    The lowest bin holds the lower half, the next a quarter, and so on, and the highest as many as
    the one before it: most instances are healthy, and what matters is the upper tail. Equal
    probabilities stay together, so there may be fewer than `n_bins` bins. Ask for no more than
    log2(n / 50), or the highest hold too few to say anything.

    Parameters
    ----------
    judged : iterable of (probabilities, labels), each ndarray of shape (n,)
    n_bins : int

    >>> labels = np.array([0, 0, 0, 0, 0, 1, 1, 1], np.int8)
    >>> bins = reliability([(np.arange(8) / 10, labels)], 3)
    >>> [(b.low, b.high, b.count, b.positives) for b in bins]
    [(0.0, 0.3, 4, 0), (0.4, 0.5, 2, 1), (0.6, 0.7, 2, 2)]
    """
    if n_bins < 1:
        raise ValueError(f"`n_bins` must be at least 1, got {n_bins}.")
    n = sum(len(probabilities) for probabilities, _ in judged)
    if not n:
        return ()
    ranks = np.ceil((n - 1) * (1.0 - 0.5 ** np.arange(1, n_bins))).astype(np.int64)
    edges = order_statistics(_Probabilities(judged), ranks)
    heaps = [_Heap() for _ in range(n_bins)]
    for probabilities, labels in judged:
        members = np.searchsorted(edges, probabilities, side="right")
        for member in np.unique(members).tolist():
            heaps[member].add(probabilities[members == member], labels[members == member])
    return tuple(heap.to_bin() for heap in heaps if heap.count)


@dataclass(frozen=True, slots=True)
class _Probabilities:
    judged: Judged

    def __iter__(self) -> Iterator[Floats]:
        return (probabilities for probabilities, _ in self.judged)


@dataclass(slots=True)
class _Heap:
    """A bin that parts are added to."""

    low: float = np.inf
    high: float = -np.inf
    total: float = 0.0
    count: int = 0
    positives: int = 0

    def add(self, probabilities: Floats, labels: Labels) -> None:
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
