"""The settings of a walk through time: recipe, ensembles, training spans, test sets."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.catalogue import BASELINE_NAMES
from forewarn.models.prediction.ensembles import CASCADE_FIRST, Committee
from forewarn.models.prediction.training_set import Recipe

__all__ = ["WalkSettings"]


@dataclass(frozen=True, slots=True)
class WalkSettings:
    """Models and training spans that a walk compares, and the test sets it compares them on.

    Attributes
    ----------
    recipe : Recipe
    committee : Committee
    models : tuple of str
    training_spans : tuple of Nanoseconds
    every : Nanoseconds
        From one retraining to the next.
    k, negatives_per_positive : float
        Of the 1:8 test sets.
    select_by : str
        Method whose precision chooses the training span.
    baselines : tuple of str
        Trained beside, for comparison.
    select_over : int
        Finished windows that the strategy `steady` pools to choose the training span; 1 is the
        paper's rule, which `variable` always follows.
    """

    recipe: Recipe
    committee: Committee
    models: tuple[str, ...]
    training_spans: tuple[Nanoseconds, ...]
    every: Nanoseconds
    k: float
    negatives_per_positive: float
    select_by: str
    baselines: tuple[str, ...] = BASELINE_NAMES
    select_over: int = 1

    @property
    def names(self) -> tuple[str, ...]:
        """Scores that committees and selection need."""
        return (*self.models, CASCADE_FIRST)

    @property
    def longest(self) -> Nanoseconds:
        """The longest training span."""
        return max(self.training_spans)

    @property
    def reach(self) -> Nanoseconds:
        """Time before a moment whose records a training as of that moment reads."""
        return Nanoseconds(self.recipe.horizon + self.longest + self.recipe.plan.reach)
