"""Plug-in models: entry points of other packages, in the group `forewarn.models`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from forewarn.features.errors import InputError
from forewarn.models.prediction.model_names import MODEL_NAMES

if TYPE_CHECKING:
    from forewarn.models.prediction.model_catalogue import ModelCatalogue, PluginModel

__all__ = ["MODEL_GROUP", "PluginError", "check_models", "find_plugins"]

MODEL_GROUP = "forewarn.models"


class PluginError(InputError):
    """A plug-in model that cannot be used."""


def find_plugins(names: Iterable[str]) -> dict[str, PluginModel]:
    """Return the installed plug-in models among `names`, which the configuration allows.

    Only metadata is read. A package is imported when its model is trained or loaded; no other
    package of the group is imported.

    Raises
    ------
    PluginError
        If two packages declare a model of the same name.
    """
    from forewarn.models.prediction.model_catalogue import PluginModel

    plugins: dict[str, PluginModel] = {}
    for name in names:
        for point in entry_points(group=MODEL_GROUP, name=name):
            if point.dist is None:
                continue
            package, version = point.dist.name, point.dist.version
            if name in plugins and plugins[name].package != package:
                first, second = sorted((plugins[name].package, package))
                raise PluginError(
                    f"`models.plugins` names `{name}`, which the packages {first} and {second} "
                    "both declare. Uninstall one of them."
                )
            plugins.setdefault(name, PluginModel(package, version, _importer(point)))
    return plugins


def _importer(point: EntryPoint) -> Any:
    def import_class() -> Any:
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise PluginError(
                f"model `{point.name}`: cannot import {point.value} ({reason})."
            ) from None

    return import_class


def check_models(
    names: Iterable[str],
    hyperparameters: Mapping[str, Mapping[str, object]],
    catalogue: ModelCatalogue,
) -> None:
    """Refuse models that are not installed, and hyperparameters that they do not accept.

    Parameters
    ----------
    names : iterable of str
        Models that the configuration allows.
    hyperparameters : mapping of str to mapping
        Those that are set, by model.
    catalogue : ModelCatalogue

    Raises
    ------
    PluginError
        If a package is missing, or a table has an unknown key or a wrong value.
    """
    from forewarn.models.prediction.hyperparameters import check_hyperparameters

    for name in dict.fromkeys((*names, *hyperparameters)):
        if name not in MODEL_NAMES and name not in catalogue.plugins:
            raise PluginError(
                f"model `{name}`: no installed package declares it, expected an entry point of "
                f"the group `{MODEL_GROUP}`."
            )
    for name, values in hyperparameters.items():
        try:
            check_hyperparameters(catalogue.class_of(name), values)
        except ValueError as error:
            raise PluginError(f"`models.{name}`: {error}.") from None
