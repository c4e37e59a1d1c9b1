"""Models by their names in configurations and reports."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.model_names import BASELINE_NAMES, MODEL_NAMES

__all__ = ["BASELINE_NAMES", "MODEL_NAMES", "load_model", "make_model"]


class _ModelClass(Protocol):
    """The methods of a model class that the catalogue calls."""

    def __call__(self, *, seed: int, purge: int, positive_weight: float) -> FailureModel: ...

    def load(self, folder: Path) -> FailureModel: ...


def _class_of(name: str) -> _ModelClass:
    """Return the class for a model name; import only its module."""
    match name:
        case "cnn":
            from forewarn.models.prediction.networks.architectures import CnnModel

            return CnnModel
        case "mlp":
            from forewarn.models.prediction.networks.architectures import MlpModel

            return MlpModel
        case "gbdt":
            from forewarn.models.prediction.trees.gbdt import GbdtModel

            return GbdtModel
        case "lstm":
            from forewarn.models.prediction.networks.architectures import LstmModel

            return LstmModel
        case "linear":
            from forewarn.models.prediction.linear.linear_model import LinearModel

            return LinearModel
        case "random":
            from forewarn.models.prediction.baselines import RandomModel

            return RandomModel
        case "last_value":
            from forewarn.models.prediction.baselines import LastValueRule

            return LastValueRule
        case "logistic":
            from forewarn.models.prediction.linear.logistic_model import LogisticModel

            return LogisticModel
        case "window_gbdt":
            from forewarn.models.prediction.trees.window_statistics import WindowStatsGbdt

            return WindowStatsGbdt
        case _:
            known = ", ".join((*MODEL_NAMES, *BASELINE_NAMES))
            raise ValueError(f"`name` must be one of {known}, got {name!r}.")


def make_model(name: str, *, seed: int, purge: int, positive_weight: float = 1.0) -> FailureModel:
    """Return an untrained model.

    Parameters
    ----------
    name : str
        One of `MODEL_NAMES` or `BASELINE_NAMES`.
    seed : int
        At least 0.
    purge : int
        Nanoseconds, one horizon, left out between the training and the validation part of early
        stopping.
    positive_weight : float
        Multiplies the weights of positives in the loss; 10 for the first model of a cascade.

    Raises
    ------
    ValueError
        If no model has that name.
    """
    return _class_of(name)(seed=seed, purge=purge, positive_weight=positive_weight)


def load_model(name: str, folder: Path) -> FailureModel:
    """Load the model `name` from `folder`; see `make_model`."""
    return _class_of(name).load(folder)
