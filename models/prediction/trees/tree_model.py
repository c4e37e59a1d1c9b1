"""Base class of the LightGBM models: training, scoring and files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import InputColumns, ModelInputs
from forewarn.models.prediction.hyperparameters import Hyperparameter
from forewarn.models.prediction.linear.loss_weights import loss_weights
from forewarn.models.prediction.linear.parameter_file import read_parameters, write_parameters
from forewarn.models.prediction.linear.row_batches import row_batches, score_in_batches
from forewarn.models.prediction.trees.compiled_trees import CompiledTrees
from forewarn.models.prediction.trees.tree_text_check import check_tree_text

__all__ = ["TreeModel"]

_TREES_FILE = "trees.txt"
_N_TREES = 200  # arXiv 2201.11853

_PARAMETERS = {
    "objective": "binary",
    "deterministic": True,
    "force_row_wise": True,
    # A second thread saves half a second on a usual training set. On a busy host it costs ten,
    # because LightGBM's threads wait by spinning.
    "num_threads": 1,
    "verbosity": -1,
}


class TreeModel:
    """A failure model of 200 boosted trees; subclasses define the columns and the parameters.

    LightGBM trains the trees and defines the file format. Scoring does not need LightGBM.

    Parameters
    ----------
    seed : int
        Seed of all random choices of LightGBM.
    purge : int
        Ignored: the number of trees is the paper's, without early stopping.
    positive_weight : float
        Multiplies the weights of positives in the loss.

    Attributes
    ----------
    columns_ : InputColumns
        Columns of the training instances.
    feature_names : tuple of str
        Names of the columns of the table.
    text_ : str
        The trees in LightGBM's text format.
    trees_ : CompiledTrees
    """

    large_training_set: ClassVar[bool] = True
    columns_: InputColumns
    feature_names: tuple[str, ...]
    text_: str
    trees_: CompiledTrees

    def __init__(self, *, seed: int, purge: int = 0, positive_weight: float = 1.0) -> None:
        self.seed = seed
        self.purge = purge
        self.positive_weight = positive_weight

    @property
    def parameters(self) -> dict[str, Hyperparameter]:
        """Return the parameters of LightGBM."""
        raise NotImplementedError

    def table(self, inputs: ModelInputs) -> npt.NDArray[np.float32]:
        """Return the columns, of shape (n, n_features)."""
        raise NotImplementedError

    def names(self, inputs: ModelInputs) -> tuple[str, ...]:
        """Return the name of each column of `table`."""
        raise NotImplementedError

    def fit(
        self,
        inputs: ModelInputs,
        labels: npt.NDArray[np.int8],
        weights: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> Self:
        """Fit on n instances; `ends` is ignored."""
        del ends
        import lightgbm

        weighted = loss_weights(labels, weights, self.positive_weight)
        data = lightgbm.Dataset(self.table(inputs), label=labels, weight=weighted)
        parameters = {**_PARAMETERS, **self.parameters, "seed": self.seed}
        self.text_ = lightgbm.train(parameters, data, _N_TREES).model_to_string()
        self.trees_ = CompiledTrees.from_text(self.text_)
        self.columns_, self.feature_names = inputs.columns, self.names(inputs)
        return self

    def score(self, inputs: ModelInputs) -> npt.NDArray[np.float64]:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""
        self.columns_.refuse_others(inputs.columns)

        def score(rows: slice) -> npt.NDArray[np.float64]:
            return self.trees_.score(self.table(inputs.select(rows)))

        return score_in_batches(score, len(inputs))

    def tables(self, inputs: ModelInputs) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
        """Yield the rows and the table of each batch."""
        for rows in row_batches(len(inputs)):
            yield rows, self.table(inputs.select(rows))

    def save(self, folder: Path) -> None:
        """Write LightGBM's text, and the names as JSON, into an existing `folder`."""
        parameters = {
            "seed": self.seed,
            "purge": self.purge,
            "positive_weight": self.positive_weight,
            "columns": self.columns_.to_dict(),
            "feature_names": self.feature_names,
        }
        (folder / _TREES_FILE).write_text(self.text_, encoding="utf-8")
        write_parameters(folder, parameters)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the files that `save` wrote.

        Raises
        ------
        ValueError
            If the trees are damaged.
        """
        saved = read_parameters(folder)
        model = cls(
            seed=saved["seed"], purge=saved["purge"], positive_weight=saved["positive_weight"]
        )
        model.columns_ = InputColumns.from_dict(saved["columns"])
        model.feature_names = tuple(saved["feature_names"])
        model.text_ = (folder / _TREES_FILE).read_text(encoding="utf-8")
        check_tree_text(model.text_, len(model.feature_names))
        model.trees_ = CompiledTrees.from_text(model.text_)
        return model
