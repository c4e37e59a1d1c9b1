"""Fits of logistic regressions: with a ridge penalty, and with normal priors on batches of data."""

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
    """The fitted parameters of a logistic regression.

    Attributes
    ----------
    coefficients : ndarray of shape (n_columns,)
    intercept : float
    """

    coefficients: Float64Array
    intercept: float

    def score(self, table: Float64Array) -> Float64Array:
        """Return scores of shape (n,) in [0, 1] for a table of shape (n, n_columns)."""
        # BLAS rounds differently for other numbers of rows and threads. With einsum the scores of a
        # list agree with those of a backtest to the last bit.
        return sigmoid(np.einsum("ij,j->i", table, self.coefficients) + self.intercept)


def fit_logistic(
    table: Float64Array,
    labels: Int8Array,
    weights: Float32Array,
    strength: float = 1.0,
) -> LogisticFit:
    """Fit a logistic regression with a ridge penalty.

    Parameters
    ----------
    table : ndarray of shape (n, n_columns)
    labels : ndarray of shape (n,)
        0 or 1.
    weights : ndarray of shape (n,)
        Weights of the instances in the loss.
    strength : float
        Weight of the loss relative to half the sum of squared coefficients; `C` in scikit-learn.
    """
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    regression = LogisticRegression(C=strength, solver="newton-cholesky")
    # With a few hundred columns a second thread gains nothing. On a busy host, waiting threads use
    # ten times the CPU, and the order of summation would depend on their number.
    with threadpool_limits(1, user_api="blas"):
        regression.fit(table, labels, sample_weight=weights)
    return LogisticFit(regression.coef_[0].astype(np.float64), float(regression.intercept_[0]))


class RegressionData(NamedTuple):
    """A part of the data of a regression.

    Attributes
    ----------
    design : ndarray of shape (n, n_coefficients)
    outcomes, weights : ndarray of shape (n,)
    offset : ndarray of shape (n,), or 0.0
        Log odds added independently of the coefficients.
    """

    design: Float64Array
    outcomes: Float64Array
    weights: Float64Array
    offset: Float64Array | float = 0.0


@dataclass(slots=True)
class _Derivatives:
    """The loss for given coefficients, and its first two derivatives."""

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
    """Return the posterior mode of the coefficients, by Newton's method with step halving.

    Parameters
    ----------
    parts : iterable of RegressionData
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
