"""Rows of one test window in the format of score files (docs/formats.md, section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from forewarn.evaluation.prediction.metrics.score_table import EvaluationProtocol, ScoreTable
from forewarn.evaluation.prediction.walk_forward.negative_sampling import negative_sampling_mask
from forewarn.evaluation.prediction.walk_forward.walk_forward import WalkForward
from forewarn.evaluation.prediction.walk_forward.window_scores import WindowScores
from forewarn.features.array_types import BoolArray, Float64Array
from forewarn.features.prediction.instances import hours_to_failure
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.records.record_table import MACHINE
from forewarn.features.time_units import DAY
from forewarn.pipelines.runtime.timestamps import to_timestamps

__all__ = ["finished_table", "score_table", "scores_frame", "strategy_frame"]


def finished_table(
    walk: WalkForward, timeline: Timeline, protocol: EvaluationProtocol
) -> ScoreTable | None:
    """Return the scores of the configured strategy on all windows; None without a failure."""
    strategy = walk.settings.strategy
    frames = [strategy_frame(walk, timeline, window, strategy) for window in walk.windows]
    return score_table(walk, frames, protocol)


def score_table(
    walk: WalkForward, frames: Sequence[pd.DataFrame], protocol: EvaluationProtocol
) -> ScoreTable | None:
    """Join the rows of some windows; return None if there is no failure among them."""
    if not frames:
        return None
    table = ScoreTable(pd.concat(frames, ignore_index=True), protocol, walk.unseen_from)
    return table if table.windows else None


def strategy_frame(
    walk: WalkForward, timeline: Timeline, window: WindowScores, strategy: str
) -> pd.DataFrame:
    """Return the rows of a strategy, with probabilities and flags."""
    length, scores = window.by_strategy[strategy]
    probability = scores["probability"][window.tested]
    frame = scores_frame(walk, timeline, window, length, scores)
    flags = frame[[name for name in frame.columns if name.startswith("flag_")]]
    frame = frame.drop(columns=["score_probability", *flags.columns])
    frame["probability"] = probability
    frame["calibrated"] = walk.has_known_labels(window.start)
    return pd.concat([frame, flags], axis=1)


def scores_frame(
    walk: WalkForward,
    timeline: Timeline,
    window: WindowScores,
    length: int,
    scores: Mapping[str, Float64Array],
) -> pd.DataFrame:
    """Return the rows of all instances of a window with the given scores.

    Ensemble flags are included if the scores of all members are given.
    """
    instances, settings = window.instances.select(window.tested), walk.settings
    scores = {name: values[window.tested] for name, values in scores.items()}
    hashes = window.hashes[window.tested]
    sampled = negative_sampling_mask(instances.label, hashes, settings.negatives_per_positive)
    columns: dict[str, Any] = {
        "test_window": to_timestamps(np.full(len(instances), window.start)),
        "gpu_serial": np.array(walk.records.serials, dtype=object)[instances.gpu],
    }
    machine = walk.records.texts.get(MACHINE)
    if machine is not None and window.machine is not None:
        names = np.array([*machine.texts, ""], dtype=object)
        columns["machine_id"] = names[window.machine[window.tested]]
    columns |= {
        "window_end": to_timestamps(instances.end),
        "label": instances.label,
        "sampled": sampled,
        "train_length_days": length / DAY,
        "hours_to_failure": hours_to_failure(
            timeline, instances.gpu, instances.end, settings.recipe.horizon
        ),
    }
    columns |= {f"score_{name}": values for name, values in scores.items()}
    if set(settings.names) <= set(scores):
        columns |= _flags(walk, sampled, scores)
    return pd.DataFrame(columns)


def _flags(
    walk: WalkForward, sampled: BoolArray, scores: Mapping[str, Float64Array]
) -> dict[str, BoolArray]:
    """Return the flags of the ensembles on the sampled rows."""
    rows, settings = np.flatnonzero(sampled), walk.settings
    sampled_scores = {name: values[rows] for name, values in scores.items()}
    columns = {}
    for method in ("parallel", "cascade"):
        flags = np.zeros(len(sampled), dtype=bool)
        if len(rows):
            flags[rows] = settings.committee.flags(
                method, sampled_scores, settings.k, np.arange(len(rows))
            )
        columns[f"flag_{method}"] = flags
    return columns
