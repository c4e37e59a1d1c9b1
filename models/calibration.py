"""Scores to probabilities, and how well probabilities agree with what happened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.models.logits import logit, sigmoid

__all__ = [
    "Calibration",
    "ReliabilityBin",
    "calibration_slope",
    "fit_calibration",
    "prior_correction",
    "reliability",
]

_SLOPE_SD = 0.5
_INTERCEPT_SD = 2.0
_LEAST_SLOPE = 0.05
_NO_PRIOR_SD = 1e3
_MOST_STEPS = 100
_TOLERANCE = 1e-10

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A straight line on the scale of log odds: it changes probabilities, not their order.

    Attributes
    ----------
    slope : float
        Positive. Below 1 for scores that are too sure.
    intercept : float
        Log odds added; below 0 where failures are rarer than in training.

    >>> Calibration(1.0, 0.0).apply([0.25]).round(6).tolist()
    [0.25]
    """

    slope: float
    intercept: float

    def __post_init__(self) -> None:
        if not 0 < self.slope < math.inf:
            raise ValueError(f"`slope` must be positive and finite, got {self.slope}.")
        if not math.isfinite(self.intercept):
            raise ValueError(f"`intercept` must be finite, got {self.intercept}.")

    def apply(self, scores: npt.ArrayLike) -> Floats:
        """Return the probabilities of scores in [0, 1]."""
        return sigmoid(self.intercept + self.slope * logit(scores))

    def to_dict(self) -> dict[str, float]:
        """Return what JSON can hold."""
        return {"slope": self.slope, "intercept": self.intercept}

    @classmethod
    def from_dict(cls, saved: Mapping[str, float]) -> Self:
        """Read what `to_dict` returned."""
        return cls(slope=float(saved["slope"]), intercept=float(saved["intercept"]))


def prior_correction(balance_trained: float, balance_true: float) -> Calibration:
    """Undo the balance of the training set.

    A model trained on thinned negatives gives odds that are too high by the same factor
    everywhere: the training odds of a positive over the true ones.

    Parameters
    ----------
    balance_trained : float
        Share of positives in training, weighted as in the loss.
    balance_true : float
        Share of positives among all instances.

    >>> prior_correction(0.5, 0.1).apply([0.5]).round(6).tolist()
    [0.1]
    """
    for name, balance in (("balance_trained", balance_trained), ("balance_true", balance_true)):
        if not 0.0 < balance < 1.0:
            raise ValueError(f"`{name}` must lie between 0 and 1, got {balance}.")
    shift = float(logit(balance_true) - logit(balance_trained))
    return Calibration(slope=1.0, intercept=shift)


def fit_calibration(
    scores: npt.NDArray[np.float64],
    labels: npt.NDArray[np.int8],
    *,
    start: Calibration,
    weights: npt.NDArray[np.float64] | None = None,
) -> Calibration:
    """Fit slope and intercept on out-of-time scores at true prevalence (Platt scaling).

    A calibration span holds few failures, so both are pulled towards `start` by normal priors:
    standard deviation 0.5 for the slope, 2 for the intercept. A span without any failure is
    allowed and only lowers the intercept. The slope stays at least 0.05, because calibrating must
    not turn the ranking round.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Scores in [0, 1], as the model gives them.
    labels : ndarray of shape (n,)
    start : Calibration
        What is believed without these data; see `prior_correction`.
    weights : ndarray of shape (n,), optional
        What each instance counts as evidence; 1 by default. One failure makes a run of positives
        that are no independent evidence: give *every* instance one over the length of a run, since
        a weight on positives alone would change the prevalence.
    """
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    log_odds, outcomes = logit(scores), np.asarray(labels, dtype=np.float64)
    design = np.stack([log_odds, np.ones_like(log_odds)], axis=1)
    centre = np.array([start.slope, start.intercept])
    spread = np.array([_SLOPE_SD, _INTERCEPT_SD])
    slope, intercept = _maximum(design, outcomes, weights, centre, spread)
    if slope < _LEAST_SLOPE:
        slope = _LEAST_SLOPE
        held = _LEAST_SLOPE * log_odds
        (intercept,) = _maximum(design[:, 1:], outcomes, weights, centre[1:], spread[1:], held)
    return Calibration(slope=float(slope), intercept=float(intercept))


def _maximum(
    design: Floats,
    outcomes: Floats,
    weights: Floats,
    centre: Floats,
    spread: Floats,
    offset: Floats | float = 0.0,
) -> Floats:
    """Logistic regression with normal priors by Newton's method, halving steps that overshoot."""

    def loss(coefficients: Floats) -> float:
        log_odds = design @ coefficients + offset
        losses = np.logaddexp(0.0, log_odds) - outcomes * log_odds
        return float(weights @ losses + 0.5 * np.sum(((coefficients - centre) / spread) ** 2))

    coefficients = centre.astype(np.float64)
    for _ in range(_MOST_STEPS):
        expected = sigmoid(design @ coefficients + offset)
        gradient = design.T @ (weights * (expected - outcomes)) + (
            (coefficients - centre) / spread**2
        )
        variances = weights * expected * (1.0 - expected)
        curvature = (design.T * variances) @ design + np.diag(1.0 / spread**2)
        step = np.linalg.solve(curvature, gradient)
        before = loss(coefficients)
        while loss(coefficients - step) > before and np.abs(step).max() > _TOLERANCE:
            step = step / 2.0
        coefficients = coefficients - step
        if np.abs(step).max() <= _TOLERANCE:
            break
    return coefficients


def calibration_slope(
    probabilities: npt.NDArray[np.float64], labels: npt.NDArray[np.int8]
) -> tuple[float, float]:
    """Return slope and intercept of a logistic regression of the labels on the log odds.

    1 and 0 for perfect probabilities. A slope below 1 says that they are too extreme, one above 1
    that they are too timid; with a slope of 1 a negative intercept says that they are too high.

    Raises
    ------
    ValueError
        If `labels` holds one class only, or all `probabilities` are equal.
    """
    outcomes, log_odds = np.asarray(labels, dtype=np.float64), logit(probabilities)
    for name, values in (("labels", outcomes), ("probabilities", log_odds)):
        if np.ptp(values) == 0:
            raise ValueError(f"`{name}` must hold at least two values, got one.")
    design = np.stack([log_odds, np.ones_like(log_odds)], axis=1)
    # So wide a prior says nothing, but keeps the slope of perfectly separated classes finite.
    slope, intercept = _maximum(
        design, outcomes, np.ones_like(outcomes), np.array([1.0, 0.0]), np.full(2, _NO_PRIOR_SD)
    )
    return float(slope), float(intercept)


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


def reliability(
    probabilities: npt.NDArray[np.float64], labels: npt.NDArray[np.int8], n_bins: int = 10
) -> tuple[ReliabilityBin, ...]:
    """Group instances by probability, lowest first, each bin with about half of what is left.

    The lowest bin holds the lower half, the next a quarter, and so on, and the highest as many as
    the one before it: most instances are healthy, and what matters is the upper tail. Equal
    probabilities stay together, so there may be fewer than `n_bins` bins. Ask for no more than
    log2(n / 50), or the highest hold too few to say anything.

    >>> bins = reliability(np.arange(8) / 10, np.array([0, 0, 0, 0, 0, 1, 1, 1], np.int8), 3)
    >>> [(b.low, b.high, b.count, b.positives) for b in bins]
    [(0.0, 0.3, 4, 0), (0.4, 0.5, 2, 1), (0.6, 0.7, 2, 2)]
    """
    if n_bins < 1:
        raise ValueError(f"`n_bins` must be at least 1, got {n_bins}.")
    if len(probabilities) == 0:
        return ()
    shares = 1.0 - 0.5 ** np.arange(1, n_bins)
    edges = np.quantile(probabilities, shares, method="higher")
    members = np.searchsorted(edges, probabilities, side="right")
    return tuple(
        _bin(probabilities[members == member], labels[members == member])
        for member in np.unique(members)
    )


def _bin(probabilities: npt.NDArray[np.float64], labels: npt.NDArray[np.int8]) -> ReliabilityBin:
    positives = int(labels.sum())
    return ReliabilityBin(
        low=float(probabilities.min()),
        high=float(probabilities.max()),
        mean_probability=float(probabilities.mean()),
        observed=positives / len(labels),
        count=len(labels),
        positives=positives,
    )
