"""A baseline: boosted trees on summary statistics of the window."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.hyperparameters import Hyperparameter
from forewarn.models.prediction.trees.tree_model import TreeModel

__all__ = ["WindowStatsGbdt"]

_STATISTICS = ("mean", "std", "min", "max", "last", "change")
_CATEGORY = "category:"


class WindowStatsGbdt(TreeModel):
    """LightGBM on common summary statistics, with nearly default settings.

    For each channel the table holds the mean, standard deviation, minimum, maximum and last bucket
    number of the window, and the difference between the last and the first. Of the context it holds
    only the one-hot categories. Statistics ignore missing values and are NaN if all are missing.
    """

    @property
    def parameters(self) -> dict[str, Hyperparameter]:
        """Return the parameters of LightGBM."""
        return {"learning_rate": 0.1, "num_leaves": 31}

    def table(self, inputs: ModelInputs) -> npt.NDArray[np.float32]:
        """Return all channels of each statistic in turn, then the categories."""
        values = inputs.sequence.astype(np.float32)
        missing = inputs.sequence == 0
        values[missing] = np.nan
        categories = inputs.context[:, list(_categories(inputs))].astype(np.float32)
        return np.concatenate(
            [
                *_mean_and_std(values, missing),
                np.fmin.reduce(values, axis=1),
                np.fmax.reduce(values, axis=1),
                values[:, -1],
                values[:, -1] - values[:, 0],
                categories,
            ],
            axis=1,
        )

    def names(self, inputs: ModelInputs) -> tuple[str, ...]:
        """Return the names of the columns of `table`."""
        statistics = (
            f"{channel} {statistic}"
            for statistic in _STATISTICS
            for channel in inputs.sequence_names
        )
        return (*statistics, *_categories(inputs).values())


def _categories(inputs: ModelInputs) -> dict[int, str]:
    """Return number and name of the one-hot context columns."""
    return {
        column: name
        for column, name in enumerate(inputs.context_names)
        if name.startswith(_CATEGORY)
    }


def _mean_and_std(
    values: npt.NDArray[np.float32], missing: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return mean and standard deviation over the records, NaN where all are missing."""
    present = np.where(missing, 0.0, values)
    counts = (~missing).sum(axis=1).astype(np.float32)
    counts[counts == 0] = np.nan
    mean = present.sum(axis=1) / counts
    variance = (present**2).sum(axis=1) / counts - mean**2
    return mean, np.sqrt(np.maximum(variance, 0.0, out=variance))
