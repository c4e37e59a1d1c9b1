"""Weights of instances in the loss."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["loss_weights"]


def loss_weights(
    labels: npt.NDArray[np.int8], weights: npt.NDArray[np.float32], positive_weight: float
) -> npt.NDArray[np.float32]:
    """Multiply the weights of positives by `positive_weight` and scale to a mean of 1.

    With a mean of 1, learning rates and penalties do not depend on the unit of `weights`.

    Raises
    ------
    ValueError
        If one of the classes has no weight.

    Examples
    --------
    >>> loss_weights(np.array([1, 0], np.int8), np.ones(2, np.float32), 3.0).tolist()
    [1.5, 0.5]
    """
    if positive_weight <= 0:
        raise ValueError(f"`positive_weight` must be positive, got {positive_weight}.")
    positive = labels == 1
    weighted = np.where(positive, positive_weight, 1.0) * weights.astype(np.float64)
    if not (weighted[positive].sum() > 0 and weighted[~positive].sum() > 0):
        raise ValueError(
            f"`labels` must hold 0 and 1 with weight, got {int(positive.sum())} positives among "
            f"{len(labels)} instances."
        )
    return np.asarray(weighted / weighted.mean(), dtype=np.float32)
