"""Calibration of scores to probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.array_types import Float64Array, Int8Array
from forewarn.models.prediction.linear.log_odds import logit, sigmoid
from forewarn.models.prediction.linear.logistic_fit import RegressionData, posterior_mode

__all__ = [
    "Calibration",
    "fit_calibration",
    "prior_correction",
]

_SLOPE_SD = 0.5
_INTERCEPT_SD = 2.0
_MIN_SLOPE = 0.05
_CEILING_SD = 1.0  # of the logarithm of the ceiling
_CEILINGS = np.exp(-np.arange(0.25, 3.75, 0.25))  # down to 3 %
_N_BINS = 400


@dataclass(frozen=True, slots=True)
class Calibration:
    """A linear function on log odds, with an upper limit for probabilities.

    It changes probabilities but not their order.

    Attributes
    ----------
    slope : float
        Positive. Below 1 for overconfident scores.
    intercept : float
        Added to the log odds; negative where failures are rarer than in training.
    ceiling : float
        Upper limit of the probability, in (0, 1]: a GPU with every warning sign may still survive.

    Examples
    --------
    >>> Calibration(1.0, 0.0).apply([0.25]).round(6).tolist()
    [0.25]
    """

    slope: float
    intercept: float
    ceiling: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.slope < math.inf:
            raise ValueError(f"`slope` must be positive and finite, got {self.slope}.")
        if not math.isfinite(self.intercept):
            raise ValueError(f"`intercept` must be finite, got {self.intercept}.")
        if not 0 < self.ceiling <= 1:
            raise ValueError(f"`ceiling` must be in (0, 1], got {self.ceiling}.")

    def apply(self, scores: npt.ArrayLike) -> Float64Array:
        """Return the calibrated probabilities of scores in [0, 1]."""
        return self.ceiling * sigmoid(self.intercept + self.slope * logit(scores))

    def to_dict(self) -> dict[str, float]:
        """Return a JSON-serializable dict."""
        return {"slope": self.slope, "intercept": self.intercept, "ceiling": self.ceiling}

    @classmethod
    def from_dict(cls, saved: Mapping[str, float]) -> Self:
        """Read a dict from `to_dict`."""
        ceiling = float(saved.get("ceiling", 1.0))  # absent in older files
        return cls(float(saved["slope"]), float(saved["intercept"]), ceiling)


def prior_correction(balance_trained: float, balance_true: float) -> Calibration:
    """Return the calibration that corrects for undersampled negatives in the training set.

    Undersampling multiplies the odds of every prediction by one factor: the training odds of a
    positive divided by the true odds.

    Parameters
    ----------
    balance_trained : float
        Share of positives in training, weighted as in the loss.
    balance_true : float
        Share of positives among all instances.

    Examples
    --------
    >>> prior_correction(0.5, 0.1).apply([0.5]).round(6).tolist()
    [0.1]
    """
    for name, balance in (("balance_trained", balance_trained), ("balance_true", balance_true)):
        if not 0.0 < balance < 1.0:
            raise ValueError(f"`{name}` must lie between 0 and 1, got {balance}.")
    shift = float(logit(balance_true) - logit(balance_trained))
    return Calibration(slope=1.0, intercept=shift)


def fit_calibration(
    scores: Float64Array,
    labels: Int8Array,
    *,
    start: Calibration,
    weights: Float64Array | None = None,
) -> Calibration:
    """Fit a calibration (Platt scaling with a ceiling) on out-of-time scores at true prevalence.

    A calibration span holds few failures, so normal priors pull both parameters towards `start`:
    the standard deviation is 0.5 for the slope and 2 for the intercept. A span without failures is
    allowed and only lowers the intercept. The slope stays at least 0.05, because calibration must
    not reverse the ranking. The logarithm of the ceiling has a half-normal prior of standard
    deviation 1, so a ceiling below 1 needs evidence that a line alone does not explain.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Scores in [0, 1], as the model returns them.
    labels : ndarray of shape (n,)
    start : Calibration
        Prior mean; see `prior_correction`.
    weights : ndarray of shape (n,), optional
        Weight of each instance as evidence; 1 by default. One failure causes several consecutive
        positives, which are not independent evidence. Give *every* instance a weight of one over
        the number of those positives: a weight on positives alone would change the prevalence.
    """
    weights = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    log_odds, outcomes = logit(scores), np.asarray(labels, dtype=np.float64)
    design = np.stack([log_odds, np.ones_like(log_odds)], axis=1)
    centre = np.array([start.slope, start.intercept])
    spread = np.array([_SLOPE_SD, _INTERCEPT_SD])
    slope, intercept = posterior_mode([RegressionData(design, outcomes, weights)], centre, spread)
    if slope < _MIN_SLOPE:
        slope = _MIN_SLOPE
        held = RegressionData(design[:, 1:], outcomes, weights, _MIN_SLOPE * log_odds)
        (intercept,) = posterior_mode([held], centre[1:], spread[1:])
    line = Calibration(slope=float(slope), intercept=float(intercept))
    if slope <= _MIN_SLOPE or not outcomes.any():
        return line  # too few high scores to estimate a ceiling
    return _below_ceiling(line, _BinnedScores.from_scores(log_odds, outcomes, weights), start)


@dataclass(frozen=True, slots=True)
class _BinnedScores:
    """Binned scores: mean log odds, total weight and weight of failing instances per bin."""

    log_odds: Float64Array
    total: Float64Array
    failing: Float64Array

    @classmethod
    def from_scores(
        cls, log_odds: Float64Array, outcomes: Float64Array, weights: Float64Array
    ) -> _BinnedScores:
        low, high = float(log_odds.min()), float(log_odds.max())
        numbers = ((log_odds - low) * (_N_BINS / max(high - low, 1e-9))).astype(np.int64)
        sums = [
            np.bincount(numbers, weights * values, minlength=_N_BINS + 1)
            for values in (np.ones_like(log_odds), log_odds, outcomes)
        ]
        total, odds, failing = (part[sums[0] > 0].astype(np.float64) for part in sums)
        return cls(odds / total, total, failing)


def _below_ceiling(line: Calibration, counts: _BinnedScores, start: Calibration) -> Calibration:
    """Return the line, or the calibration with a ceiling if that explains the outcomes better."""
    best, least = line, _loss(line, counts, start)[0]
    for ceiling in _CEILINGS.tolist():
        fitted = _fit_below(ceiling, best, counts, start)
        loss, _ = _loss(fitted, counts, start)
        if loss < least:
            best, least = fitted, loss
    return best


def _fit_below(
    ceiling: float, near: Calibration, counts: _BinnedScores, start: Calibration
) -> Calibration:
    """Fit slope and intercept for a given ceiling."""
    from scipy.optimize import minimize  # slow to import, and most commands do not fit

    def loss(values: Float64Array) -> tuple[float, Float64Array]:
        return _loss(Calibration(float(values[0]), float(values[1]), ceiling), counts, start)

    first = [near.slope, near.intercept + math.log(near.ceiling / ceiling)]
    limits = [(_MIN_SLOPE, None), (None, None)]
    slope, intercept = minimize(loss, first, jac=True, bounds=limits, method="L-BFGS-B").x
    return Calibration(float(slope), float(intercept), ceiling)


def _loss(
    fitted: Calibration, counts: _BinnedScores, start: Calibration
) -> tuple[float, Float64Array]:
    """Return the negative log posterior and its gradient by slope and intercept."""
    share = sigmoid(fitted.intercept + fitted.slope * counts.log_odds)
    chance = np.clip(fitted.ceiling * share, 1e-12, 1.0 - 1e-12)
    living = counts.total - counts.failing
    loss = -(counts.failing * np.log(chance) + living * np.log1p(-chance)).sum()
    by_odds = living * chance * (1.0 - share) / (1.0 - chance) - counts.failing * (1.0 - share)
    # For small probabilities, a change of the ceiling is equivalent to a change of the intercept.
    drop = -math.log(fitted.ceiling)
    off = np.array([fitted.slope - start.slope, fitted.intercept - drop - start.intercept])
    spread = np.array([_SLOPE_SD, _INTERCEPT_SD])
    loss += 0.5 * float(((off / spread) ** 2).sum()) + 0.5 * (drop / _CEILING_SD) ** 2
    gradient = np.array([(by_odds * counts.log_odds).sum(), by_odds.sum()]) + off / spread**2
    return float(loss), gradient
