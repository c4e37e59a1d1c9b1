"""The predictors in a site's registry, for the page of models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from forewarn.pipelines.config.settings import Settings
from forewarn.pipelines.console.console_site import ModelVersion
from forewarn.pipelines.runtime.timestamps import format_iso

__all__ = ["registered_models"]

_ADDRESS = "MLFLOW_TRACKING_URI"


def registered_models(
    settings: Settings, environment: Mapping[str, str] = os.environ
) -> Sequence[ModelVersion]:
    """Return the registered predictors, newest first; none if the registry cannot be read.

    Parameters
    ----------
    settings : Settings
    environment : mapping
        `MLFLOW_TRACKING_URI` is the address of MLflow's pages, if it is one of HTTP.
    """
    try:
        # The extra [train] has MLflow; a console alone needs it only for this page.
        from forewarn.pipelines.storage.registry.model_registry import Registry

        versions = Registry.from_settings(settings).versions()
    except (ImportError, OSError, ValueError):
        return ()
    address = environment.get(_ADDRESS, "")
    name = settings.registry.model
    pages = f"{address.rstrip('/')}/#/models/{name}/versions" if address[:4] == "http" else ""
    return [
        ModelVersion(
            name=f"{version.number}: {version.name}",
            role=next(iter(version.aliases), ""),
            trained_at=format_iso(version.trained_at) if version.trained_at else "",
            gate=version.gate,
            link=f"{pages}/{version.number}" if pages else "",
        )
        for version in versions
    ]
