"""HistGradientBoostingClassifier of scikit-learn as a failure model."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import InputColumns, ModelInputs
from forewarn.models.prediction.hyperparameters import Range
from forewarn.models.prediction.linear.loss_weights import loss_weights
from forewarn_hist_gradient_boosting.reproducible_skops import reproducible

_TREES, _COLUMNS = "trees.skops", "columns.json"


class HistGradientBoosting:
    """Boosted trees on the window and the context.

    Parameters
    ----------
    seed, purge, positive_weight
        As for every failure model. `purge` is ignored: there is no early stopping.
    max_iter, learning_rate, max_leaf_nodes, min_samples_leaf, l2_regularization
        See scikit-learn.
    """

    needs: ClassVar[tuple[str, ...]] = ("sklearn",)  # its trees are scored by scikit-learn
    large_training_set: ClassVar[bool] = True
    # What skops may construct, beyond its own list. It belongs here: a file must not choose.
    trusted: ClassVar[list[str]] = [
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor"
    ]

    trees_: Any
    columns_: InputColumns
    archive_: bytes

    def __init__(
        self,
        *,
        seed: int,
        purge: int = 0,
        positive_weight: float = 1.0,
        max_iter: Annotated[int, Range(1, 5000, (50, 400))] = 150,
        learning_rate: Annotated[float, Range(1e-4, 1.0, (0.02, 0.2), log=True)] = 0.05,
        max_leaf_nodes: Annotated[int, Range(2, 1024, (7, 63), log=True)] = 31,
        min_samples_leaf: Annotated[int, Range(1, 1e6, (5, 80), log=True)] = 20,
        l2_regularization: Annotated[float, Range(0.0, 1e6)] = 1.0,
    ) -> None:
        del purge
        self.positive_weight = positive_weight
        self._options: dict[str, Any] = {
            "random_state": seed,
            "max_iter": max_iter,
            "learning_rate": learning_rate,
            "max_leaf_nodes": max_leaf_nodes,
            "min_samples_leaf": min_samples_leaf,
            "l2_regularization": l2_regularization,
        }

    def fit(
        self,
        inputs: ModelInputs,
        labels: npt.NDArray[np.int8],
        weights: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> Self:
        """Fit on n instances; `ends` is ignored."""
        del ends
        from sklearn.ensemble import HistGradientBoostingClassifier
        from skops.io import dumps

        weighted = loss_weights(labels, weights, self.positive_weight)  # refuses a single class
        trees = HistGradientBoostingClassifier(early_stopping=False, **self._options)
        with _one_thread():
            trees.fit(_table(inputs), labels, sample_weight=weighted)
        self.trees_, self.columns_ = trees, inputs.columns
        self.archive_ = reproducible(dumps(trees))
        return self

    def score(self, inputs: ModelInputs) -> npt.NDArray[np.float64]:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""
        self.columns_.refuse_others(inputs.columns)
        if not len(inputs):  # scikit-learn refuses an empty table
            return np.zeros(0)
        with _one_thread():
            probabilities: npt.NDArray[np.float64] = self.trees_.predict_proba(_table(inputs))
        return probabilities[:, 1]

    def save(self, folder: Path) -> None:
        """Write the trees, and the names of the columns, into an existing `folder`."""
        (folder / _TREES).write_bytes(self.archive_)
        columns = json.dumps(self.columns_.to_dict(), sort_keys=True)
        (folder / _COLUMNS).write_text(columns, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the files that `save` wrote; skops constructs no other type than `trusted`."""
        from skops.io import loads

        model = cls(seed=0)
        model.archive_ = (folder / _TREES).read_bytes()
        model.trees_ = loads(model.archive_, trusted=cls.trusted)
        saved = json.loads((folder / _COLUMNS).read_text(encoding="utf-8"))
        model.columns_ = InputColumns.from_dict(saved)
        return model


def _one_thread() -> AbstractContextManager[None]:
    """Keep scikit-learn from starting threads, which wait by spinning on a busy host."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[None] = threadpool_limits(limits=1, user_api="openmp")
    return limits


def _table(inputs: ModelInputs) -> npt.NDArray[np.float32]:
    """Return the window, oldest record first, and the context as one table.

    Bucket 0, "missing", stays the lowest number: scikit-learn refuses columns that are all NaN.
    """
    n, length, n_channels = inputs.sequence.shape
    columns = [inputs.sequence.reshape(n, length * n_channels), inputs.context]
    return np.concatenate(columns, axis=1).astype(np.float32)
