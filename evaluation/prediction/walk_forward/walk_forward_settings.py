"""Settings of a walk-forward backtest: recipe, ensembles, training spans and test sets."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.evaluation.prediction.walk_forward.strategies import Strategy
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.ensembles import CASCADE_FIRST, Committee
from forewarn.models.prediction.model_catalogue import BASELINE_NAMES
from forewarn.models.prediction.model_names import LINEAR
from forewarn.models.prediction.training_set import Recipe

__all__ = ["WalkForwardSettings"]

_MAX_HALF_LIVES = 3  # after three half-lives an instance has an eighth of its weight


@dataclass(frozen=True, slots=True)
class WalkForwardSettings:
    """Models, training spans and test sets of a walk-forward backtest.

    Attributes
    ----------
    recipe : Recipe
    committee : Committee
    models : tuple of str
    training_spans : tuple of Nanoseconds
    every : Nanoseconds
        Time between two retrainings.
    k, negatives_per_positive : float
        Parameters of the 1:8 test sets.
    select_by : str
        Method whose precision chooses the training span.
    baselines : tuple of str
        Models trained for comparison only.
    select_over : int
        Finished windows that `steady` pools to choose the training span; 1 is the paper's rule,
        which `variable` always follows.
    strategy : Strategy
        Strategy of trainings outside of a backtest.
    half_life : Nanoseconds or None
        Half-life of the weight of an instance, for `expanding`; None: no age weighting.
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
    strategy: Strategy = Strategy.STEADY
    half_life: Nanoseconds | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Scores that committees and span selection need."""
        stages = [name for name, _ in self.committee.cascade if name == CASCADE_FIRST]
        return (*self.models, *self.voters, *stages)

    @property
    def voters(self) -> tuple[str, ...]:
        """The linear model, if it has a vote and is not among the models; empty otherwise."""
        votes = self.committee.linear and LINEAR not in self.models
        return (LINEAR,) if votes else ()

    @property
    def choosing_names(self) -> tuple[str, ...]:
        """Scores that the choice of a training span needs."""
        if self.select_by == "parallel":
            return self.committee.parallel
        if self.select_by == "cascade":
            return tuple(name for name, _ in self.committee.cascade)
        return (self.select_by,)

    @property
    def longest(self) -> Nanoseconds:
        """The longest training span."""
        return max(self.training_spans)

    @property
    def most_compared(self) -> int:
        """Number of finished windows on which a training compares training spans."""
        return self.select_over if self.strategy is Strategy.STEADY else 0

    @property
    def reach(self) -> Nanoseconds:
        """Length of the records before a moment that a training as of that moment reads."""
        return self.reach_of(self.longest)

    def reach_of(self, training_span: Nanoseconds) -> Nanoseconds:
        """Return the length of the records before a moment that a training on a span reads."""
        return Nanoseconds(self.recipe.horizon + training_span + self.recipe.plan.reach)

    def expanding_span(self, moment: int, first: int) -> Nanoseconds:
        """Return the training span of `expanding`: from the first record to one horizon ago.

        Instances with negligible weight are left out, so that old records need not be read.
        """
        span = max(moment - self.recipe.horizon - first, self.longest)
        return Nanoseconds(span if self._most is None else min(span, self._most))

    def reads_from(self, moment: int) -> int | None:
        """Return the time from which a training as of a moment reads records; None: all records."""
        if self.strategy is not Strategy.EXPANDING:
            return moment - self.reach
        return None if self._most is None else moment - self.reach_of(self._most)

    @property
    def _most(self) -> Nanoseconds | None:
        if self.half_life is None:
            return None
        return max(Nanoseconds(_MAX_HALF_LIVES * self.half_life), self.longest)
