"""Scoring with a Keras network."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.inputs import Inputs
from forewarn.models.prediction.bucket_scaling import InputScaling
from forewarn.models.tensorflow_runtime import tensorflow

__all__ = ["LogOdds"]

_ROWS_AT_ONCE = 1024


class LogOdds:
    """Log odds that a network gives, computed in batches of one shape so that it traces once."""

    def __init__(self, network: Any, scaling: InputScaling) -> None:
        self._scaling = scaling
        tf = tensorflow()
        signature = [tf.TensorSpec((_ROWS_AT_ONCE, *part.shape[1:])) for part in network.inputs]
        self._forward = tf.function(
            lambda sequence, context: network([sequence, context], training=False)[:, 0],
            input_signature=signature,
            jit_compile=False,
        )

    def __call__(self, inputs: Inputs) -> npt.NDArray[np.float64]:
        """Return log odds of shape (n,)."""
        log_odds = np.empty(len(inputs), dtype=np.float64)
        for begin in range(0, len(inputs), _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            parts = self._scaling.apply(inputs.take(rows))
            n = len(parts[1])
            log_odds[rows] = self._forward(*(_padded(part) for part in parts)).numpy()[:n]
        return log_odds


def _padded(part: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Fill up with zeros to the shape of a whole batch."""
    if len(part) == _ROWS_AT_ONCE:
        return part
    whole = np.zeros((_ROWS_AT_ONCE, *part.shape[1:]), dtype=np.float32)
    whole[: len(part)] = part
    return whole
