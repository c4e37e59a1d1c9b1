"""Comparison of a challenger with the champion on finished windows, each trained before them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from forewarn.evaluation.prediction.metrics.backtest_metrics import (
    ChampionComparison,
    compare_with_champion,
)
from forewarn.evaluation.prediction.metrics.calibration_metrics import (
    CalibrationMetrics,
    calibration_metrics,
)
from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.array_types import Float64Array
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.models.prediction.predictor import Predictor
from forewarn.models.prediction.reliability import LabelledProbabilities
from forewarn.pipelines.backtest.run_metrics import quality_metrics
from forewarn.pipelines.backtest.score_frames import scores_frame
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.registry.model_registry import Registry, RegistryError
from forewarn.pipelines.storage.registry.registered_version import Version
from forewarn.pipelines.training.drift_check import blend_scores

__all__ = ["ComparedModels", "compare_models", "load_champion"]

_CHALLENGER, _CHAMPION = "challenger", "champion"


class ComparedModels(NamedTuple):
    """Result of a comparison.

    Attributes
    ----------
    comparison : ChampionComparison
        What the gate decides by.
    metrics : dict of str to (float or None)
        Quality of both on the same windows, for MLflow: `challenger/…` and `champion/…`, or
        `rules/…` without a champion.
    """

    comparison: ChampionComparison
    metrics: dict[str, float | None]


def compare_models(
    walk: WalkForward, timeline: Timeline, registry: Registry, protocol: EvaluationProtocol
) -> ComparedModels | None:
    """Compare recipe and champion on the finished windows, each trained before the window.

    Without a champion, the built-in rules take its place. None without a window to compare on.
    """
    by_rules, frames = registry.champion() is None, list[pd.DataFrame]()
    for window in walk.windows:
        theirs = _rival_scores(walk, registry, window, by_rules)
        if theirs is not None:
            frames.append(_compared_rows(walk, timeline, window, *theirs))
    if not frames:
        return None
    table = ScoreTable(pd.concat(frames, ignore_index=True), protocol, walk.unseen_from)
    compared = compare_with_champion(table, by_rules=by_rules)
    if compared is None:
        return None
    rival = "rules/" if by_rules else "champion/"
    metrics = quality_metrics(compared.challenger, _calibration(table, _CHALLENGER), "challenger/")
    metrics |= quality_metrics(compared.champion, _calibration(table, _CHAMPION), rival)
    return ComparedModels(compared.comparison, metrics)


def _compared_rows(
    walk: WalkForward,
    timeline: Timeline,
    window: WindowScores,
    theirs: Float64Array,
    probability: Float64Array,
) -> pd.DataFrame:
    """Return scores and probabilities of both in a window; NaN where there is no probability."""
    length, scores = window.by_strategy[walk.settings.strategy]
    pair = {_CHALLENGER: scores["blend"], _CHAMPION: theirs}
    frame = scores_frame(walk, timeline, window, length, pair)
    fitted = walk.has_known_labels(window.start)
    own = scores["probability"] if fitted else np.full(len(theirs), np.nan)
    for name, values in ((_CHALLENGER, own), (_CHAMPION, probability)):
        frame[f"probability_{name}"] = values[window.tested]
    return frame


def _rival_scores(
    walk: WalkForward, registry: Registry, window: WindowScores, by_rules: bool
) -> tuple[Float64Array, Float64Array] | None:
    """Return scores and probabilities of what made the lists of a window.

    None if it has other input columns. The rules give no probabilities.
    """
    if by_rules:
        points = window.by_strategy[walk.settings.strategy][1]["rules"]
        return points, np.full(len(points), np.nan)
    champion = load_champion(registry, registry.champion_before(window.start))
    if champion is None or champion.encoder.measures.plan.kinds != walk.settings.recipe.plan.kinds:
        return None
    scores = blend_scores(champion, *walk.measured(window))
    return scores, champion.calibration.apply(scores)


def load_champion(registry: Registry, version: Version | None) -> Predictor | None:
    """Load a champion for comparison; write a note and return None if that fails."""
    if version is None:
        return None
    try:
        return registry.load_version(version)
    except RegistryError as error:
        note(f"version {version.number} cannot be loaded and is not compared: {error}")
        return None


def _calibration(table: ScoreTable, name: str) -> CalibrationMetrics | None:
    """Return the calibration of a model where it has probabilities; None without any."""
    values = table.frame[f"probability_{name}"].to_numpy(float)
    known = np.isfinite(values)
    if not known.any():
        return None
    judged = LabelledProbabilities(values[known], table.labels[known], table.machine[known])
    return calibration_metrics([judged], table.draws)
