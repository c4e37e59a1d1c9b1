"""A folder of one trained recipe, in the native formats of a predictor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forewarn.evaluation.prediction.walk_settings import WalkSettings
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.predictor import Predictor
from forewarn.models.prediction.trained_recipe import TrainedRecipe

__all__ = ["load_recipe", "save_recipe"]


def save_recipe(
    folder: Path, trained: TrainedRecipe, settings: WalkSettings, facts: Mapping[str, Any]
) -> None:
    """Write a recipe into an existing, empty folder.

    Parameters
    ----------
    folder : Path
    trained : TrainedRecipe
    settings : WalkSettings
        Those it was trained by.
    facts : mapping
        What a reader of the folder may want to know besides.
    """
    shares = {"balance": trained.balance, "prevalence": trained.prevalence}
    predictor = Predictor(
        trained.encoder,
        trained.models,
        settings.committee,
        trained.prior,
        settings.recipe.cascade_model,
        {**facts, **shares},
    )
    predictor.save(folder)


def load_recipe(folder: Path, training_span: Nanoseconds) -> TrainedRecipe:
    """Read what `save_recipe` wrote; it scores exactly as what was saved.

    Raises
    ------
    PredictorError, ValueError, TypeError, KeyError
        If the folder is not whole.
    """
    predictor = Predictor.load(folder)
    balance, prevalence = (float(predictor.facts[name]) for name in ("balance", "prevalence"))
    if not (math.isfinite(balance) and math.isfinite(prevalence)):
        raise ValueError("`balance` or `prevalence` is no number")
    return TrainedRecipe(training_span, predictor.encoder, predictor.models, balance, prevalence)
