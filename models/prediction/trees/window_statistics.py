"""The plain baseline: trees on statistics of the window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.trees.tree_model import TreeModel

__all__ = ["WindowStatsGbdt"]

_STATISTICS = ("mean", "std", "min", "max", "last", "change")
_CATEGORY = "category:"


class WindowStatsGbdt(TreeModel):
    """LightGBM on what most people would compute first, close to its default settings.

    Of each channel the mean, standard deviation, least, greatest and last bucket number of the
    window, and the last minus the first; of the context only the one-hot categories. Missing
    values are left out of the statistics; one that is left without values is NaN.
    """

    parameters: ClassVar[Mapping[str, float]] = {"learning_rate": 0.1, "num_leaves": 31}

    def table(self, inputs: ModelInputs) -> npt.NDArray[np.float32]:
        """Return the statistics, channel by channel within each, then the categories."""
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
        """Name the columns of `table`."""
        statistics = (
            f"{channel} {statistic}"
            for statistic in _STATISTICS
            for channel in inputs.sequence_names
        )
        return (*statistics, *_categories(inputs).values())


def _categories(inputs: ModelInputs) -> dict[int, str]:
    """Context columns that are one-hot categories, by number."""
    return {
        column: name
        for column, name in enumerate(inputs.context_names)
        if name.startswith(_CATEGORY)
    }


def _mean_and_std(
    values: npt.NDArray[np.float32], missing: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Mean and standard deviation over the records, NaN where all are missing."""
    present = np.where(missing, 0.0, values)
    counts = (~missing).sum(axis=1).astype(np.float32)
    counts[counts == 0] = np.nan
    mean = present.sum(axis=1) / counts
    variance = (present**2).sum(axis=1) / counts - mean**2
    return mean, np.sqrt(np.maximum(variance, 0.0, out=variance))
