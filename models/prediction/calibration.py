"""Scores to probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.models.prediction.log_odds import logit, sigmoid
from forewarn.models.prediction.logistic_maximum import Evidence, maximum

__all__ = [
    "Calibration",
    "fit_calibration",
    "prior_correction",
]

_SLOPE_SD = 0.5
_INTERCEPT_SD = 2.0
_LEAST_SLOPE = 0.05

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
    slope, intercept = maximum([Evidence(design, outcomes, weights)], centre, spread)
    if slope < _LEAST_SLOPE:
        slope = _LEAST_SLOPE
        held = Evidence(design[:, 1:], outcomes, weights, _LEAST_SLOPE * log_odds)
        (intercept,) = maximum([held], centre[1:], spread[1:])
    return Calibration(slope=float(slope), intercept=float(intercept))
