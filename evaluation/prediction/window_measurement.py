"""A test window measured once, for all recipes that score it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.fleet_reading import FleetReading
from forewarn.features.prediction.inputs import Inputs
from forewarn.features.prediction.instances import Instances
from forewarn.features.prediction.plan import Plan
from forewarn.features.records.timeline import Fleet
from forewarn.models.prediction.trained_recipe import Stage, TrainedRecipe

__all__ = ["RowsOfRecipe", "measured_parts", "score_window"]

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

# Instances: each takes some 3 KiB while it is measured. More of them read the fleet again.
_MEASURED_AT_ONCE = 450_000


class RowsOfRecipe(NamedTuple):
    """A recipe, and the rows of a test window that it scores, in ascending order; None: all."""

    recipe: TrainedRecipe
    rows: Rows | None


def measured_parts(instances: Instances) -> Iterator[Instances]:
    """Yield as many instances as are measured at once; an empty part where there is none."""
    for start in range(0, max(len(instances), 1), _MEASURED_AT_ONCE):
        yield instances.take(np.arange(start, min(start + _MEASURED_AT_ONCE, len(instances))))


def score_window(
    plan: Plan,
    fleet: Fleet,
    instances: Instances,
    scorers: Sequence[RowsOfRecipe],
    stage: Stage,
) -> list[dict[str, Floats]]:
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
    parts: list[list[tuple[Inputs, Floats]]] = [[] for _ in scorers]
    start = 0
    for some in measured_parts(instances):
        with stage("measure test windows"):
            reading = FleetReading.of(plan, fleet, some)
            for part, (recipe, chosen) in zip(parts, scorers, strict=True):
                part.append(_inputs(recipe, reading, start, chosen))
        start += len(some)
    with stage("score"):
        return [of.recipe.scores_of(part) for of, part in zip(scorers, parts, strict=True)]


def _inputs(
    recipe: TrainedRecipe, reading: FleetReading, start: int, chosen: Rows | None
) -> tuple[Inputs, Floats]:
    """Encode the chosen ones of the instances that were read, the first of which is `start`."""
    values = recipe.encoder.measures.values_of(reading)
    if chosen is not None:
        low, high = np.searchsorted(chosen, [start, start + len(values)])
        values = values.take(chosen[low:high] - start)
    return recipe.inputs(values)
