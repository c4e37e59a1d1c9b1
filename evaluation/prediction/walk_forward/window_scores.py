"""Scores of one test window by all recipes, and the labels known at a moment."""

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
    label_instances,
    window_without_failures,
)
from forewarn.features.prediction.model_inputs import ModelInputs
from forewarn.features.records.fleet_timeline import Fleet, Timeline
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.trained_recipe import Stage, TrainedRecipe
from forewarn.models.prediction.training_set import Recipe

__all__ = ["RecipeRows", "WindowScores", "instance_batches", "score_window"]

# An instance needs some 3 KiB while its features are computed. Further batches read the fleet
# again.
_MAX_BATCH_INSTANCES = 450_000


@dataclass(slots=True)
class WindowScores:
    """A test window: its instances, and their scores by training span and strategy.

    Attributes
    ----------
    start : int
    instances : Instances
        All instances of GPUs that were not known to have failed.
    hashes : ndarray of shape (n,)
        Sampling hashes.
    tested : ndarray of shape (n,), bool
        Valid instances with a known label and a horizon within the records.
    by_span : dict
        Scores by training span, for the instances of `compared`.
    by_strategy : dict
        Training span and scores by strategy.
    machine : ndarray of shape (n,), int64, or None
        Number of each instance's machine; None if unknown.
    compared : ndarray, int64, or None
        Rows on which training spans are compared, in ascending order; None: all.
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
        """Return the scores of a training span at `rows`, which are a subset of `compared`."""
        at = rows if self.compared is None else np.searchsorted(self.compared, rows)
        return {name: values[at] for name, values in self.by_span[span].items()}

    def known_labels(self, timeline: Timeline, recipe: Recipe) -> Int8Array:
        """Return the labels known to the timeline, else -1."""
        instances = self.instances
        labels = label_instances(timeline, instances.gpu, instances.end, recipe.horizon)
        clean = window_without_failures(
            timeline.failures, instances.gpu, instances.end, recipe.window_span
        )
        # Records may arrive late, so even a finished window may lack some.
        clean &= horizon_observed(timeline, instances.end, recipe.horizon)
        return np.where(clean, labels, UNKNOWN).astype(np.int8)


class RecipeRows(NamedTuple):
    """A recipe and the rows of a test window that it scores, in ascending order; None: all."""

    recipe: TrainedRecipe
    rows: Int64Array | None


def instance_batches(instances: Instances) -> Iterator[Instances]:
    """Yield batches of instances; a single empty batch if there are none."""
    for start in range(0, max(len(instances), 1), _MAX_BATCH_INSTANCES):
        yield instances.select(np.arange(start, min(start + _MAX_BATCH_INSTANCES, len(instances))))


def score_window(
    plan: FeaturePlan,
    fleet: Fleet,
    instances: Instances,
    scorers: Sequence[RecipeRows],
    stage: Stage,
) -> list[dict[str, Float64Array]]:
    """Score the instances of a test window with several recipes.

    Parameters
    ----------
    plan : FeaturePlan
        Feature plan of all recipes.
    fleet : Fleet
    instances : Instances
        Instances of that fleet.
    scorers : sequence of RecipeRows
    stage : callable
        Context manager that names the current stage, for time measurements.

    Returns
    -------
    list of dict of ndarray
        Scores by name, for each recipe.
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
        return [s.recipe.scores_of(part) for s, part in zip(scorers, parts, strict=True)]


def _inputs(
    recipe: TrainedRecipe, reading: FleetReading, start: int, chosen: Int64Array | None
) -> tuple[ModelInputs, Float64Array]:
    """Encode the `chosen` instances of a batch that starts at number `start`."""
    values = recipe.encoder.measures.values_of(reading)
    if chosen is not None:
        low, high = np.searchsorted(chosen, [start, start + len(values)])
        values = values.select(chosen[low:high] - start)
    return recipe.inputs(values)
