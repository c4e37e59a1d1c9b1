"""Trivial baselines that every other model has to beat."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.model_inputs import InputColumns, ModelInputs
from forewarn.models.prediction.linear.loss_weights import loss_weights
from forewarn.models.prediction.linear.parameter_file import read_parameters, write_parameters

__all__ = ["LastValueRule", "RandomModel"]


class RandomModel:
    """Scores drawn uniformly from [0, 1), independent of the instances.

    The i-th score of a call depends on i, the seed and the end of the training span. Repeated calls
    give the same scores; each retraining gives new ones.

    Parameters
    ----------
    seed : int
    purge, positive_weight
        Ignored.
    """

    last_end_: int

    def __init__(self, *, seed: int, purge: int = 0, positive_weight: float = 1.0) -> None:
        del purge, positive_weight
        self.seed = seed

    def fit(
        self,
        inputs: ModelInputs,
        labels: npt.NDArray[np.int8],
        weights: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> Self:
        """Store the latest of `ends`; ignore everything else."""
        del inputs, labels, weights
        self.last_end_ = int(ends.max())
        return self

    def score(self, inputs: ModelInputs) -> npt.NDArray[np.float64]:
        """Return random scores of shape (n,) in [0, 1)."""
        return np.random.default_rng([self.seed, abs(self.last_end_)]).random(len(inputs))

    def save(self, folder: Path) -> None:
        """Write JSON into an existing `folder`."""
        write_parameters(folder, {"seed": self.seed, "last_end": self.last_end_})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the files that `save` wrote."""
        saved = read_parameters(folder)
        model = cls(seed=saved["seed"])
        model.last_end_ = saved["last_end"]
        return model


class LastValueRule:
    """A threshold on one channel of the last record, chosen on the training set.

    The score is the bucket number of that channel scaled to [0, 1], or its reverse. A missing value
    scores 0.

    Parameters
    ----------
    seed, purge
        Ignored.
    positive_weight : float
        Multiplies the weights of positives.

    Attributes
    ----------
    columns_ : InputColumns
        Columns of the training instances.
    channel_ : str
        Name of the chosen channel.
    rising_ : bool
        Whether high values mean high risk.
    """

    columns_: InputColumns
    channel_: str
    rising_: bool
    _column: int
    _levels: int

    def __init__(self, *, seed: int, purge: int = 0, positive_weight: float = 1.0) -> None:
        del seed, purge
        self.positive_weight = positive_weight

    def fit(
        self,
        inputs: ModelInputs,
        labels: npt.NDArray[np.int8],
        weights: npt.NDArray[np.float32],
        ends: npt.NDArray[np.int64],
    ) -> Self:
        """Choose the channel and direction with the largest weighted area under the ROC curve."""
        del ends
        self.columns_ = inputs.columns
        weighted = loss_weights(labels, weights, self.positive_weight).astype(np.float64)
        last, positive = inputs.sequence[:, -1], labels == 1
        areas = {
            (column, rising): _area(
                _risks(levels, rising=rising),
                _weight_of_buckets(last[positive, column], weighted[positive], levels),
                _weight_of_buckets(last[~positive, column], weighted[~positive], levels),
            )
            for column, levels in enumerate(inputs.sequence_levels)
            for rising in (True, False)
        }
        self._column, self.rising_ = max(areas, key=lambda choice: areas[choice])
        self._levels = inputs.sequence_levels[self._column]
        self.channel_ = inputs.sequence_names[self._column]
        return self

    def score(self, inputs: ModelInputs) -> npt.NDArray[np.float64]:
        """Return scores of shape (n,) in [0, 1]; high means likely to fail."""
        self.columns_.refuse_others(inputs.columns)
        return _risks(self._levels, rising=self.rising_)[inputs.sequence[:, -1, self._column]]

    def save(self, folder: Path) -> None:
        """Write JSON into an existing `folder`."""
        parameters = {
            "positive_weight": self.positive_weight,
            "columns": self.columns_.to_dict(),
            "channel": self.channel_,
            "rising": self.rising_,
            "column": self._column,
            "levels": self._levels,
        }
        write_parameters(folder, parameters)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the files that `save` wrote."""
        saved = read_parameters(folder)
        model = cls(seed=0, positive_weight=saved["positive_weight"])
        model.channel_, model.rising_ = saved["channel"], saved["rising"]
        model._column, model._levels = saved["column"], saved["levels"]
        model.columns_ = InputColumns.from_dict(saved["columns"])
        return model


def _risks(levels: int, *, rising: bool) -> npt.NDArray[np.float64]:
    """Return a distinct risk in [0, 1] for each bucket number; missing has risk 0."""
    buckets = np.arange(levels)
    if not rising:
        # In a column with two levels (one-hot), 0 is a value and does not mean "missing".
        buckets = 1 - buckets if levels == 2 else np.where(buckets == 0, 0, levels - buckets)
    return buckets / max(levels - 1, 1)


def _weight_of_buckets(
    buckets: npt.NDArray[np.uint8], weights: npt.NDArray[np.float64], levels: int
) -> npt.NDArray[np.float64]:
    sums: npt.NDArray[np.float64] = np.bincount(buckets, weights, levels).astype(np.float64)
    return sums


def _area(
    risks: npt.NDArray[np.float64],
    positives: npt.NDArray[np.float64],
    negatives: npt.NDArray[np.float64],
) -> float:
    """Return the area under the ROC curve, given the weights of each class at each risk."""
    order = np.argsort(risks)
    below = np.cumsum(negatives[order]) - negatives[order] / 2  # ties count half
    return float(positives[order] @ below / (positives.sum() * negatives.sum()))
