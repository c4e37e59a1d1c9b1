"""One test window of a walk: its scores by all recipes, and what was known of it when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import (
    BoolArray,
    Float64Array,
    Int8Array,
    Int64Array,
    UInt64Array,
)
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.fleet_reading import FleetReading
from forewarn.features.prediction.instances import (
    UNKNOWN,
    Instances,
    horizon_observed,
    label,
    window_without_failures,
)
from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.features.records.fleet_timeline import Fleet, Timeline
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.trained_recipe import Stage, TrainedRecipe
from forewarn.models.prediction.training_set import Recipe

__all__ = ["RecipeRows", "WindowScores", "instance_batches", "score_window"]

# Instances: each takes some 3 KiB while it is measured. More of them read the fleet again.
_MAX_BATCH_INSTANCES = 450_000


@dataclass(slots=True)
class WindowScores:
    """A test window: what would have been scored in it and, by training span, the scores.

    Attributes
    ----------
    start : int
    instances : Instances
        All that nobody knew to be failed, whatever was learned of them afterwards.
    hashes : ndarray of shape (n,)
        For sampling.
    tested : ndarray of shape (n,), bool
        In the end known to be instances, with a known label and a horizon that was seen whole.
    by_span : dict
        Scores by training span, of the instances of `compared`.
    by_strategy : dict
        Training span and scores by strategy.
    machine : ndarray of shape (n,), int64, or None
        Number of the machine of each; None where machines are unknown.
    compared : ndarray, int64, or None
        The rows, in ascending order, that training spans are compared on; None: all.
    """

    start: int
    instances: Instances
    hashes: UInt64Array
    tested: BoolArray
    by_span: dict[Nanoseconds, dict[str, Float64Array]] = field(default_factory=dict)
    by_strategy: dict[str, tuple[Nanoseconds, dict[str, Float64Array]]] = field(
        default_factory=dict
    )
    machine: Int64Array | None = None
    compared: Int64Array | None = None

    def scores_at(self, span: Nanoseconds, rows: Int64Array) -> dict[str, Float64Array]:
        """Return the scores of a training span at `rows`, which are among `compared`."""
        at = rows if self.compared is None else np.searchsorted(self.compared, rows)
        return {name: values[at] for name, values in self.by_span[span].items()}

    def known_labels(self, timeline: Timeline, recipe: Recipe) -> Int8Array:
        """Return the labels of the instances as far as the timeline knows, else -1."""
        instances = self.instances
        labels = label(timeline, instances.gpu, instances.end, recipe.horizon)
        clean = window_without_failures(
            timeline.failures, instances.gpu, instances.end, recipe.window_span
        )
        # A finished window may still lack records: those that collect them may be late.
        clean &= horizon_observed(timeline, instances.end, recipe.horizon)
        return np.where(clean, labels, UNKNOWN).astype(np.int8)


class RecipeRows(NamedTuple):
    """A recipe, and the rows of a test window that it scores, in ascending order; None: all."""

    recipe: TrainedRecipe
    rows: Int64Array | None


def instance_batches(instances: Instances) -> Iterator[Instances]:
    """Yield as many instances as are measured at once; an empty part where there is none."""
    for start in range(0, max(len(instances), 1), _MAX_BATCH_INSTANCES):
        yield instances.take(np.arange(start, min(start + _MAX_BATCH_INSTANCES, len(instances))))


def score_window(
    plan: FeaturePlan,
    fleet: Fleet,
    instances: Instances,
    scorers: Sequence[RecipeRows],
    stage: Stage,
) -> list[dict[str, Float64Array]]:
    """Score the instances of a test window with some recipes.

    Parameters
    ----------
    plan : Plan
        Of all recipes.
    fleet : Fleet
    instances : Instances
        Of that fleet.
    scorers : sequence of RowsOfRecipe
    stage : callable
        Names what is being done, for whoever measures time.

    Returns
    -------
    list of dict of ndarray
        The scores of each of the recipes, by name.
    """
    parts: list[list[tuple[ModelInputs, Float64Array]]] = [[] for _ in scorers]
    start = 0
    for some in instance_batches(instances):
        with stage("measure test windows"):
            reading = FleetReading.from_fleet(plan, fleet, some)
            for part, (recipe, chosen) in zip(parts, scorers, strict=True):
                part.append(_inputs(recipe, reading, start, chosen))
        start += len(some)
    with stage("score"):
        return [of.recipe.scores_of(part) for of, part in zip(scorers, parts, strict=True)]


def _inputs(
    recipe: TrainedRecipe, reading: FleetReading, start: int, chosen: Int64Array | None
) -> tuple[ModelInputs, Float64Array]:
    """Encode the chosen ones of the instances that were read, the first of which is `start`."""
    values = recipe.encoder.measures.values_of(reading)
    if chosen is not None:
        low, high = np.searchsorted(chosen, [start, start + len(values)])
        values = values.take(chosen[low:high] - start)
    return recipe.inputs(values)
