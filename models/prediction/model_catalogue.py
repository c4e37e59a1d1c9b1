"""Models by their names in configurations and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.hyperparameters import Hyperparameter, check_hyperparameters
from forewarn.models.prediction.model_names import BASELINE_NAMES, MODEL_NAMES

__all__ = [
    "BASELINE_NAMES",
    "BUILTIN",
    "MODEL_NAMES",
    "ModelCatalogue",
    "ModelClass",
    "PluginModel",
    "load_model",
    "make_model",
]


class ModelClass(Protocol):
    """The methods of a model class that the catalogue calls."""

    def __call__(self, *args: Any, **hyperparameters: Any) -> FailureModel:
        """Return an untrained model."""
        ...

    def load(self, folder: Path) -> FailureModel:
        """Read the files of a trained model."""
        ...


@dataclass(frozen=True, slots=True)
class PluginModel:
    """A model class of another package.

    Attributes
    ----------
    package, version : str
        Recorded in a predictor that uses the model.
    import_class : callable
        Imports the package and returns the class.
    """

    package: str
    version: str
    import_class: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ModelCatalogue:
    """The built-in models and the plug-in models that the configuration allows.

    Attributes
    ----------
    plugins : mapping of str to PluginModel
        By name. No plug-in has the name of a built-in model.
    """

    plugins: Mapping[str, PluginModel] = field(default_factory=dict)

    def class_of(self, name: str) -> ModelClass:
        """Return the class of a model; import only its module.

        Raises
        ------
        ValueError
            If no model has that name.
        """
        builtin = _builtin_class(name)
        if builtin is not None:
            return builtin
        if name not in self.plugins:
            known = ", ".join((*MODEL_NAMES, *BASELINE_NAMES, *self.plugins))
            raise ValueError(f"`name` must be one of {known}, got {name!r}.")
        plugin: ModelClass = self.plugins[name].import_class()
        return plugin

    def make(
        self,
        name: str,
        *,
        seed: int,
        purge: int,
        positive_weight: float = 1.0,
        hyperparameters: Mapping[str, Hyperparameter] | None = None,
    ) -> FailureModel:
        """Return an untrained model; see `make_model`."""
        model_class, values = self.class_of(name), dict(hyperparameters or {})
        check_hyperparameters(model_class, values)
        return model_class(seed=seed, purge=purge, positive_weight=positive_weight, **values)

    def load(self, name: str, folder: Path) -> FailureModel:
        """Load the model `name` from `folder`."""
        return self.class_of(name).load(folder)

    def packages(self, kinds: Iterable[str]) -> dict[str, str]:
        """Return package and version of the plug-in models among some kinds.

        Examples
        --------
        >>> plugin = PluginModel("forest-models", "1.0", dict)
        >>> ModelCatalogue({"forest": plugin}).packages(["cnn", "forest"])
        {'forest': 'forest-models 1.0'}
        """
        used = {kind: self.plugins[kind] for kind in kinds if kind in self.plugins}
        return {kind: f"{plugin.package} {plugin.version}" for kind, plugin in used.items()}


BUILTIN = ModelCatalogue()


def _builtin_class(name: str) -> ModelClass | None:
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
            return None


def make_model(name: str, *, seed: int, purge: int, positive_weight: float = 1.0) -> FailureModel:
    """Return an untrained built-in model.

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
    return BUILTIN.make(name, seed=seed, purge=purge, positive_weight=positive_weight)


def load_model(name: str, folder: Path) -> FailureModel:
    """Load the built-in model `name` from `folder`; see `make_model`."""
    return BUILTIN.load(name, folder)
