"""The interface of every failure model."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import ModelInputs

__all__ = ["FailureModel"]


class FailureModel(Protocol):
    """A model that scores how likely an instance is followed by a failure within the horizon.

    Two fits with the same seed on the same instances give the same scores. A model receives
    training instances only; the caller has to make sure that they lie before the training cutoff.
    """

    def fit(
        self,
        inputs: ModelInputs,
        labels: npt.NDArray[np.int8],
        weights: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> Self:
        """Fit on n instances.

        Parameters
        ----------
        inputs : Inputs of n instances
        labels : ndarray of shape (n,)
            1 if the GPU fails within the horizon, else 0.
        weights : ndarray of shape (n,)
            Weight of each instance in the loss.
        ends : ndarray of shape (n,)
            End of each window, nanoseconds since 1970 UTC; for splits in time.
        """

    def score(self, inputs: ModelInputs) -> npt.NDArray[np.float64]:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""

    def save(self, folder: Path) -> None:
        """Write the fitted model into an existing `folder`, in native formats."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the files that `save` wrote; the scores are the same as before."""
