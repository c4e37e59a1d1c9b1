"""Logistic regression: of a table of floats, and with normal priors of evidence read in parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int8Array
from forewarn.models.prediction.linear.log_odds import sigmoid

__all__ = ["LogisticFit", "RegressionData", "fit_logistic", "posterior_mode"]

_MAX_STEPS = 100
_TOLERANCE = 1e-10


class LogisticFit(NamedTuple):
    """What was fitted.

    Attributes
    ----------
    coefficients : ndarray of shape (n_columns,)
    intercept : float
    """

    coefficients: Float64Array
    intercept: float

    def score(self, table: Float64Array) -> Float64Array:
        """Return scores of shape (n,) in [0, 1] of a table of shape (n, n_columns)."""
        # Not by BLAS: it rounds by how many rows and threads there are, and a list would not agree
        # with a backtest to the last digit.
        return sigmoid(np.einsum("ij,j->i", table, self.coefficients) + self.intercept)


def fit_logistic(
    table: Float64Array,
    labels: Int8Array,
    weights: Float32Array,
    strength: float = 1.0,
) -> LogisticFit:
    """Fit with a ridge penalty.

    Parameters
    ----------
    table : ndarray of shape (n, n_columns)
    labels : ndarray of shape (n,)
        0 or 1.
    weights : ndarray of shape (n,)
        Of the instances in the loss.
    strength : float
        Of the loss beside half of the sum of the squared coefficients; `C` of scikit-learn.
    """
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    regression = LogisticRegression(C=strength, solver="newton-cholesky")
    # A few hundred columns gain nothing by a second thread; threads that wait for each other on a
    # busy host take ten times the CPU, and the order of a sum would depend on their number.
    with threadpool_limits(1, user_api="blas"):
        regression.fit(table, labels, sample_weight=weights)
    return LogisticFit(regression.coef_[0].astype(np.float64), float(regression.intercept_[0]))


class RegressionData(NamedTuple):
    """A part of what is regressed on.

    Attributes
    ----------
    design : ndarray of shape (n, n_coefficients)
    outcomes, weights : ndarray of shape (n,)
    offset : ndarray of shape (n,), or 0.0
        Log odds that are added whatever the coefficients are.
    """

    design: Float64Array
    outcomes: Float64Array
    weights: Float64Array
    offset: Float64Array | float = 0.0


@dataclass(slots=True)
class _Derivatives:
    """The loss at some coefficients, and its first two derivatives."""

    loss: float
    gradient: Float64Array
    curvature: Float64Array

    @classmethod
    def at(
        cls,
        coefficients: Float64Array,
        parts: Iterable[RegressionData],
        centre: Float64Array,
        spread: Float64Array,
    ) -> _Derivatives:
        n = len(coefficients)
        slope = cls(0.0, np.zeros(n), np.zeros((n, n)))
        for part in parts:
            slope._add(part, coefficients)
        slope.loss += float(0.5 * np.sum(((coefficients - centre) / spread) ** 2))
        slope.gradient += (coefficients - centre) / spread**2
        slope.curvature += np.diag(1.0 / spread**2)
        return slope

    def _add(self, part: RegressionData, coefficients: Float64Array) -> None:
        design, outcomes, weights, offset = part
        log_odds = design @ coefficients + offset
        expected = sigmoid(log_odds)
        self.loss += float(weights @ (np.logaddexp(0.0, log_odds) - outcomes * log_odds))
        self.gradient += design.T @ (weights * (expected - outcomes))
        self.curvature += (design.T * (weights * expected * (1.0 - expected))) @ design


def posterior_mode(
    parts: Iterable[RegressionData], centre: Float64Array, spread: Float64Array
) -> Float64Array:
    """Return the coefficients by Newton's method, halving steps that overshoot.

    Parameters
    ----------
    parts : iterable of Evidence
        Iterated several times.
    centre, spread : ndarray of shape (n_coefficients,)
        Mean and standard deviation of the prior of each coefficient.
    """
    coefficients = centre.astype(np.float64)
    now = _Derivatives.at(coefficients, parts, centre, spread)
    for _ in range(_MAX_STEPS):
        step = np.linalg.solve(now.curvature, now.gradient)
        ahead = _Derivatives.at(coefficients - step, parts, centre, spread)
        while ahead.loss > now.loss and np.abs(step).max() > _TOLERANCE:
            step = step / 2.0
            ahead = _Derivatives.at(coefficients - step, parts, centre, spread)
        coefficients, now = coefficients - step, ahead
        if np.abs(step).max() <= _TOLERANCE:
            break
    return coefficients
