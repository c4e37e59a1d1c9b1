"""One test window of a walk: its instances, their scores, and what was known of them when."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.instances import (
    UNKNOWN,
    Instances,
    label,
    seen_whole,
    untouched,
)
from forewarn.features.records.timeline import Timeline
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.training_set import Recipe

__all__ = ["WindowScores"]

Floats = npt.NDArray[np.float64]


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
        Scores by training span.
    by_strategy : dict
        Training span and scores by strategy.
    """

    start: int
    instances: Instances
    hashes: npt.NDArray[np.uint64]
    tested: npt.NDArray[np.bool_]
    by_span: dict[Nanoseconds, dict[str, Floats]] = field(default_factory=dict)
    by_strategy: dict[str, tuple[Nanoseconds, dict[str, Floats]]] = field(default_factory=dict)

    def known_labels(self, timeline: Timeline, recipe: Recipe) -> npt.NDArray[np.int8]:
        """Return the labels of the instances as far as the timeline knows, else -1."""
        instances = self.instances
        labels = label(timeline, instances.gpu, instances.end, recipe.horizon)
        clean = untouched(timeline.failures, instances.gpu, instances.end, recipe.window_span)
        # A finished window may still lack records: those that collect them may be late.
        clean &= seen_whole(timeline, instances.end, recipe.horizon)
        return np.where(clean, labels, UNKNOWN).astype(np.int8)
