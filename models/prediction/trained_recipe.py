"""One recipe trained as of a moment on one training span."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np

from forewarn.features.array_types import Float64Array
from forewarn.features.errors import InputError
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.model_inputs import InstanceValues, ModelInputs
from forewarn.features.records.fleet_timeline import Fleet
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.builtin_rules import rule_scores
from forewarn.models.prediction.calibration import Calibration, prior_correction
from forewarn.models.prediction.failure_model import FailureModel
from forewarn.models.prediction.model_fitting import fit_models
from forewarn.models.prediction.model_names import START_PREFIX
from forewarn.models.prediction.predictor import Predictor
from forewarn.models.prediction.training_candidates import TrainingCandidates
from forewarn.models.prediction.training_set import (
    Recipe,
    TrainingSet,
    UndersampledInstances,
    build_training_sets,
)

__all__ = ["MIN_POSITIVES", "RecipeTrainer", "StartingPoint", "TrainedRecipe", "TrainingCache"]

Stage = Callable[[str], AbstractContextManager[None]]

MIN_POSITIVES = 5
_ARRAYS = ("sequence", "context")


@dataclass(frozen=True, slots=True)
class TrainedRecipe:
    """One recipe trained as of a moment on one training span.

    Attributes
    ----------
    training_span : Nanoseconds
    encoder : Encoder
    models : dict of str to FailureModel
    balance : float
        Share of the positives in the loss.
    prevalence : float
        Share of positives among all instances that were known at the moment.
    """

    training_span: Nanoseconds
    encoder: Encoder
    models: dict[str, FailureModel]
    balance: float
    prevalence: float

    def scores(self, values: InstanceValues) -> dict[str, Float64Array]:
        """Return all scores of measured instances, those of the built-in rules too."""
        return self.scores_of([self.inputs(values)])

    def inputs(self, values: InstanceValues) -> tuple[ModelInputs, Float64Array]:
        """Encode measured instances; return what the built-in rules say of them, too."""
        return self.encoder.encode(values), rule_scores(values, self.encoder.measures.plan)

    def scores_of(
        self, parts: Sequence[tuple[ModelInputs, Float64Array]]
    ) -> dict[str, Float64Array]:
        """Return all scores of instances that were encoded part by part (`inputs`)."""
        inputs = _joined([part for part, _ in parts])
        scores = {name: model.score(inputs) for name, model in self.models.items()}
        return scores | {"rules": np.concatenate([points for _, points in parts])}

    @property
    def prior(self) -> Calibration:
        """The calibration that undoes the balance of the training set."""
        return prior_correction(self.balance, self.prevalence)


class TrainingCache(Protocol):
    """Recipes that were trained before and need not be trained again."""

    def recall(self, moment: int, training_span: Nanoseconds) -> TrainedRecipe | None:
        """Return what was trained as of a moment on a training span, if it was kept."""
        ...

    def keep(self, moment: int, trained: TrainedRecipe) -> None:
        """Keep what was trained as of a moment."""
        ...

    def fading(self) -> TrainingCache:
        """Return the cache of recipes to which older instances count for less."""
        ...


def _joined(parts: Sequence[ModelInputs]) -> ModelInputs:
    if len(parts) == 1:
        return parts[0]
    sequence, context = ([getattr(part, name) for part in parts] for name in _ARRAYS)
    return replace(parts[0], sequence=np.concatenate(sequence), context=np.concatenate(context))


def _no_stage(_: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class RecipeTrainer:
    """Trains a recipe as of any moment, on any training span.

    Attributes
    ----------
    recipe : Recipe
    cache : TrainingCache or None
        Asked before anything is trained, and given what was.
    stage : callable
        Names what is being done, for whoever measures time.
    start : StartingPoint or None
        Models of another site that stand beside those that are trained.
    """

    recipe: Recipe
    cache: TrainingCache | None = None
    stage: Stage = _no_stage
    start: StartingPoint | None = None

    def fading(self, half_life: Nanoseconds | None) -> RecipeTrainer:
        """Return the same trainer, to which older instances count for less."""
        cache = None if self.cache is None else self.cache.fading()
        return replace(self, recipe=replace(self.recipe, half_life=half_life), cache=cache)

    def train(
        self,
        fleet: Fleet,
        moment: int,
        training_span: Nanoseconds,
        names: Sequence[str],
        candidates: TrainingCandidates | None = None,
    ) -> TrainedRecipe | None:
        """Train on one span before `moment`; None if too few positives are known.

        Parameters
        ----------
        fleet : Fleet
            As it stood at `moment` (`as_of`).
        moment : int
        training_span : Nanoseconds
        names : sequence of str
            Models to fit.
        candidates : Candidates, optional
            Of that moment and span (`Recipe.candidates`), if they are found already.
        """
        return next(iter(self.train_spans(fleet, moment, {training_span: names}, candidates)), None)

    def train_spans(
        self,
        fleet: Fleet,
        moment: int,
        names: Mapping[Nanoseconds, Sequence[str]],
        candidates: TrainingCandidates | None = None,
    ) -> Iterator[TrainedRecipe]:
        """Train on one span after another; those in which too few positives are known are left out.

        The fleet is read once, unless all were trained before.

        Parameters
        ----------
        fleet, moment, candidates
            As of `train`, of all spans.
        names : mapping of Nanoseconds to sequence of str
            The spans, and the models to fit to each.
        """
        recalled = {span: self._recall(moment, span) for span in names}
        left = [span for span, trained in recalled.items() if trained is None]
        sets = self._training_sets(fleet, moment, left, candidates) if left else {}
        for span, models in names.items():
            trained = recalled.pop(span)
            if trained is None and span in sets:
                trained = self._trained(span, *sets.pop(span), models)
                if self.cache is not None:
                    self.cache.keep(moment, trained)
            if trained is not None:
                yield trained

    def _recall(self, moment: int, training_span: Nanoseconds) -> TrainedRecipe | None:
        return None if self.cache is None else self.cache.recall(moment, training_span)

    def _training_sets(
        self,
        fleet: Fleet,
        moment: int,
        spans: Sequence[Nanoseconds],
        candidates: TrainingCandidates | None,
    ) -> dict[Nanoseconds, tuple[Encoder, TrainingSet]]:
        """Build the training set of each span that has enough positives."""
        recipe = self.recipe
        with self.stage("training sets"):
            candidates = candidates or recipe.candidates(fleet, moment, spans)
            enough = {
                span: thinned
                for span in spans
                if (thinned := self._thinned(fleet, span, candidates)) is not None
            }
            if not enough:
                return {}
            fitted = None if self.start is None else self.start.encoder
            sets = build_training_sets(recipe, fleet, list(enough.values()), fitted)
            return dict(zip(enough, sets, strict=True))

    def _thinned(
        self, fleet: Fleet, span: Nanoseconds, candidates: TrainingCandidates
    ) -> UndersampledInstances | None:
        """Return what of a span is trained on, None where it has too few positives."""
        counts = candidates.counts[span]
        if counts.positives < MIN_POSITIVES or not counts.negatives:
            return None
        return UndersampledInstances.from_instances(
            self.recipe, fleet, candidates.known(span), counts
        )

    def _trained(
        self,
        training_span: Nanoseconds,
        encoder: Encoder,
        training: TrainingSet,
        names: Sequence[str],
    ) -> TrainedRecipe:
        with self.stage("fits"):
            models = fit_models(self.recipe, training, names)
        models |= {} if self.start is None else self.start.models
        # What the loss saw: the positives count for more in it than in the training set.
        positive = training.balance * self.recipe.positive_weight
        balance = positive / (positive + 1.0 - training.balance)
        return TrainedRecipe(training_span, encoder, models, balance, training.prevalence)


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """An encoder and models that have learned from other failures.

    They stay as they are and vote beside the models that learn here. To go on fitting them was
    tried: on few failures they lose more of what they knew than they learn.

    Attributes
    ----------
    encoder : Encoder
        Also of the models that learn here, so that all see the same inputs.
    models : mapping of str to FailureModel
        By the names under which they are kept beside the others.
    """

    encoder: Encoder
    models: Mapping[str, FailureModel]

    @classmethod
    def from_predictor(cls, predictor: Predictor, plan: FeaturePlan) -> Self:
        """Take the members of a predictor's parallel model, for a training by `plan`.

        Raises
        ------
        InputError
            If the predictor measures something else.
        """
        theirs, ours = predictor.encoder.measures.plan.to_dict(), plan.to_dict()
        for name, expected in ours.items():
            if theirs[name] != expected:
                raise InputError(f"measures {name} {theirs[name]}, expected {expected}.")
        members = predictor.committee.parallel
        return cls(
            predictor.encoder, {START_PREFIX + name: predictor.models[name] for name in members}
        )
