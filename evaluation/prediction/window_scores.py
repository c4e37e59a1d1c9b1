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
    hashes: npt.NDArray[np.uint64]
    tested: npt.NDArray[np.bool_]
    by_span: dict[Nanoseconds, dict[str, Floats]] = field(default_factory=dict)
    by_strategy: dict[str, tuple[Nanoseconds, dict[str, Floats]]] = field(default_factory=dict)
    machine: npt.NDArray[np.int64] | None = None
    compared: npt.NDArray[np.int64] | None = None

    def scores_at(self, span: Nanoseconds, rows: npt.NDArray[np.int64]) -> dict[str, Floats]:
        """Return the scores of a training span at `rows`, which are among `compared`."""
        at = rows if self.compared is None else np.searchsorted(self.compared, rows)
        return {name: values[at] for name, values in self.by_span[span].items()}

    def known_labels(self, timeline: Timeline, recipe: Recipe) -> npt.NDArray[np.int8]:
        """Return the labels of the instances as far as the timeline knows, else -1."""
        instances = self.instances
        labels = label(timeline, instances.gpu, instances.end, recipe.horizon)
        clean = untouched(timeline.failures, instances.gpu, instances.end, recipe.window_span)
        # A finished window may still lack records: those that collect them may be late.
        clean &= seen_whole(timeline, instances.end, recipe.horizon)
        return np.where(clean, labels, UNKNOWN).astype(np.int8)
