"""Gradient-boosted trees on the window and the context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.trees.leaf_paths import LeafPaths
from forewarn.models.prediction.trees.shapley import shapley_values
from forewarn.models.prediction.trees.tree_model import TreeModel

__all__ = ["GbdtModel"]


class GbdtModel(TreeModel):
    """LightGBM on the flattened window and the context (arXiv 2201.11853: 200 trees).

    A column is named `channel[-k]`, with k records between it and the last record of the window.
    The names of the context columns follow.
    """

    # A small feature fraction decorrelates trees on correlated positives. 64 bins are enough
    # because the values are bucket numbers.
    parameters: ClassVar[Mapping[str, float]] = {
        "learning_rate": 0.05,
        "num_leaves": 31,
        "min_data_in_leaf": 20,
        "lambda_l2": 1.0,
        "feature_fraction": 0.3,
        "max_bin": 64,
    }

    def table(self, inputs: ModelInputs) -> npt.NDArray[np.float32]:
        """Flatten window and context, oldest record first."""
        n, length, n_channels = inputs.sequence.shape
        table = np.empty((n, length * n_channels + inputs.context.shape[1]), dtype=np.float32)
        table[:, : length * n_channels] = inputs.sequence.reshape(n, -1)
        table[:, length * n_channels :] = inputs.context
        return table

    def contributions(self, inputs: ModelInputs) -> npt.NDArray[np.float64]:
        """Return what each feature adds to the log odds, in the order of `feature_names`.

        Returns
        -------
        ndarray of shape (n, n_features)
            Shapley values: the sum of a row, plus a constant, is the log odds of the score.
        """
        leaves = LeafPaths.from_text(self.text_)
        parts = np.empty((len(inputs), len(self.feature_names)), dtype=np.float64)
        for rows, table in self.tables(inputs):
            parts[rows] = shapley_values(leaves, table)
        return parts

    def names(self, inputs: ModelInputs) -> tuple[str, ...]:
        """Return the names of the columns of `table`."""
        length = inputs.sequence.shape[1]
        window = (
            f"{channel}[-{length - 1 - record}]"
            for record in range(length)
            for channel in inputs.sequence_names
        )
        return (*window, *inputs.context_names)
