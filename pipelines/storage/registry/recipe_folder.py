"""A folder of one trained recipe, in the native formats of a predictor."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from forewarn.features.prediction.encoder import Encoder
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.model_catalogue import ModelCatalogue
from forewarn.models.prediction.predictor_files import load_described, save_described
from forewarn.models.prediction.trained_recipe import TrainedRecipe

__all__ = ["load_recipe", "save_recipe"]


def save_recipe(folder: Path, trained: TrainedRecipe, cascade_model: str) -> None:
    """Write a recipe into an existing, empty folder; its cascade starts with `cascade_model`."""
    described = {
        "encoder": trained.encoder.to_dict(),
        "cascade_model": cascade_model,
        "balance": trained.balance,
        "prevalence": trained.prevalence,
    }
    save_described(folder, trained.models, described)


def load_recipe(
    folder: Path, training_span: Nanoseconds, catalogue: ModelCatalogue
) -> TrainedRecipe:
    """Read a recipe written by `save_recipe`; its scores are identical.

    Raises
    ------
    PredictorError
        If the folder is incomplete.
    """

    def recipe_of(saved: dict[str, Any], models: dict[str, FailureModel]) -> TrainedRecipe:
        balance, prevalence = (float(saved[name]) for name in ("balance", "prevalence"))
        if not (math.isfinite(balance) and math.isfinite(prevalence)):
            raise ValueError("`balance` or `prevalence` is not a number")
        encoder = Encoder.from_dict(saved["encoder"])
        return TrainedRecipe(training_span, encoder, models, balance, prevalence)

    return load_described(folder, recipe_of, catalogue)
