"""Gradient-boosted trees on the window and the context."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.models.prediction.hyperparameters import Hyperparameter, Range
from forewarn.models.prediction.trees.leaf_paths import LeafPaths
from forewarn.models.prediction.trees.shapley import shapley_values
from forewarn.models.prediction.trees.tree_model import TreeModel

__all__ = ["GbdtModel"]

_leaves = lru_cache(maxsize=1)(LeafPaths.from_text)  # a champion explains many lists


class GbdtModel(TreeModel):
    """LightGBM on the flattened window and the context (arXiv 2201.11853: 200 trees).

    A column is named `channel[-k]`, with k records between it and the last record of the window.
    The names of the context columns follow.

    Parameters
    ----------
    seed, purge, positive_weight
        See `TreeModel`.
    learning_rate, num_leaves, min_data_in_leaf, lambda_l2, feature_fraction
        Parameters of LightGBM.
    """

    def __init__(
        self,
        *,
        seed: int,
        purge: int = 0,
        positive_weight: float = 1.0,
        learning_rate: Annotated[float, Range(1e-4, 1.0, (0.02, 0.15), log=True)] = 0.05,
        num_leaves: Annotated[int, Range(2, 4096, (7, 63), log=True)] = 31,
        min_data_in_leaf: Annotated[int, Range(1, 1e6, (5, 80), log=True)] = 20,
        lambda_l2: Annotated[float, Range(0.0, 1e6, (0.1, 30.0), log=True)] = 1.0,
        feature_fraction: Annotated[float, Range(0.01, 1.0, (0.1, 0.8))] = 0.3,
    ) -> None:
        super().__init__(seed=seed, purge=purge, positive_weight=positive_weight)
        self._parameters: dict[str, Hyperparameter] = {
            "learning_rate": learning_rate,
            "num_leaves": num_leaves,
            "min_data_in_leaf": min_data_in_leaf,
            "lambda_l2": lambda_l2,
            # A small fraction decorrelates trees on correlated positives.
            "feature_fraction": feature_fraction,
            # Enough because the values are bucket numbers.
            "max_bin": 64,
        }

    @property
    def parameters(self) -> dict[str, Hyperparameter]:
        """Return the parameters of LightGBM."""
        return self._parameters

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
        leaves = _leaves(self.text_)
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
