"""Conversion between probabilities and log odds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["logit", "sigmoid"]

_MIN_PROBABILITY = 1e-6


def logit(probabilities: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return log(p / (1 - p)) with p clipped to [1e-6, 1 - 1e-6] to keep it finite.

    >>> logit([0.5, 0.0]).round(3).tolist()
    [0.0, -13.816]
    """
    clipped = np.clip(
        np.asarray(probabilities, dtype=np.float64), _MIN_PROBABILITY, 1.0 - _MIN_PROBABILITY
    )
    return np.log(clipped) - np.log1p(-clipped)


def sigmoid(log_odds: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return 1 / (1 + exp(-x)) without overflow.

    >>> sigmoid([-1000.0, 0.0, 1000.0]).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.exp(-np.logaddexp(0.0, -np.asarray(log_odds, dtype=np.float64)))
