"""Models by the name under which configurations and reports know them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from forewarn.models.prediction.baselines import LastValueRule, LogisticModel, RandomModel
from forewarn.models.prediction.model_names import BASELINE_NAMES, MODEL_NAMES
from forewarn.models.prediction.networks.cnn import CnnModel
from forewarn.models.prediction.networks.lstm import LstmModel
from forewarn.models.prediction.networks.mlp import MlpModel
from forewarn.models.prediction.protocol import FailureModel
from forewarn.models.prediction.trees.gbdt import GbdtModel
from forewarn.models.prediction.trees.window_statistics import WindowStatsGbdt

__all__ = ["BASELINE_NAMES", "MODEL_NAMES", "load_model", "make_model"]


class _ModelClass(Protocol):
    """Methods that the catalogue needs of a class."""

    def __call__(self, *, seed: int, purge: int, positive_weight: float) -> FailureModel: ...

    def load(self, folder: Path) -> FailureModel: ...


_CLASSES: dict[str, _ModelClass] = {
    "cnn": CnnModel,
    "mlp": MlpModel,
    "gbdt": GbdtModel,
    "lstm": LstmModel,
    "random": RandomModel,
    "last_value": LastValueRule,
    "logistic": LogisticModel,
    "window_gbdt": WindowStatsGbdt,
}


def _class_of(name: str) -> _ModelClass:
    if name not in _CLASSES:
        raise ValueError(f"`name` must be one of {', '.join(_CLASSES)}, got {name!r}.")
    return _CLASSES[name]


def make_model(name: str, *, seed: int, purge: int, positive_weight: float = 1.0) -> FailureModel:
    """Return an untrained model.

    Parameters
    ----------
    name : str
        One of `MODEL_NAMES` or `BASELINE_NAMES`.
    seed : int
        At least 0.
    purge : int
        Nanoseconds, one horizon: what early stopping leaves between training and validation.
    positive_weight : float
        Multiplies the weights of positives in the loss; the first model of a cascade has 10.

    Raises
    ------
    ValueError
        If no model has that name.
    """
    return _class_of(name)(seed=seed, purge=purge, positive_weight=positive_weight)


def load_model(name: str, folder: Path) -> FailureModel:
    """Return the model that was saved in `folder` under `name`; see `make_model`."""
    return _class_of(name).load(folder)
