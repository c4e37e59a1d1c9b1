"""A recipe trained as of a moment on one training span."""

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
from forewarn.models.prediction.model_catalogue import BUILTIN, ModelCatalogue
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
    """A recipe trained as of a moment on one training span.

    Attributes
    ----------
    training_span : Nanoseconds
    encoder : Encoder
    models : dict of str to FailureModel
    balance : float
        Share of the positives in the loss.
    prevalence : float
        Share of positives among all instances with known labels.
    """

    training_span: Nanoseconds
    encoder: Encoder
    models: dict[str, FailureModel]
    balance: float
    prevalence: float

    def scores(self, values: InstanceValues) -> dict[str, Float64Array]:
        """Return the scores of all models and of the built-in rules for feature values."""
        return self.scores_of([self.inputs(values)])

    def inputs(self, values: InstanceValues) -> tuple[ModelInputs, Float64Array]:
        """Encode feature values; return them with the scores of the built-in rules."""
        return self.encoder.encode(values), rule_scores(values, self.encoder.measures.plan)

    def scores_of(
        self, parts: Sequence[tuple[ModelInputs, Float64Array]]
    ) -> dict[str, Float64Array]:
        """Return all scores of instances that were encoded in parts (`inputs`)."""
        inputs = _joined([part for part, _ in parts])
        scores = {name: model.score(inputs) for name, model in self.models.items()}
        return scores | {"rules": np.concatenate([points for _, points in parts])}

    @property
    def prior(self) -> Calibration:
        """The calibration that corrects for the balance of the training set."""
        return prior_correction(self.balance, self.prevalence)


class TrainingCache(Protocol):
    """A cache of trained recipes."""

    def recall(self, moment: int, training_span: Nanoseconds) -> TrainedRecipe | None:
        """Return the recipe trained as of a moment on a training span, or None."""
        ...

    def keep(self, moment: int, trained: TrainedRecipe) -> None:
        """Store a recipe trained as of a moment."""
        ...

    def age_weighted(self) -> TrainingCache:
        """Return the cache of recipes with age weighting."""
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
        Looked up before a training, and filled afterwards.
    stage : callable
        Context manager that names the current stage, for time measurements.
    start : StartingPoint or None
        Models of another site that vote together with the trained ones.
    catalogue : ModelCatalogue
    """

    recipe: Recipe
    cache: TrainingCache | None = None
    stage: Stage = _no_stage
    start: StartingPoint | None = None
    catalogue: ModelCatalogue = BUILTIN

    def age_weighted(self, half_life: Nanoseconds | None) -> RecipeTrainer:
        """Return the same trainer with age weighting of instances."""
        cache = None if self.cache is None else self.cache.age_weighted()
        return replace(self, recipe=replace(self.recipe, half_life=half_life), cache=cache)

    def train(
        self,
        fleet: Fleet,
        moment: int,
        training_span: Nanoseconds,
        names: Sequence[str],
        candidates: TrainingCandidates | None = None,
    ) -> TrainedRecipe | None:
        """Train on one span before `moment`; return None if too few positives are known.

        Parameters
        ----------
        fleet : Fleet
            As of `moment` (`as_of`).
        moment : int
        training_span : Nanoseconds
        names : sequence of str
            Models to fit.
        candidates : TrainingCandidates, optional
            Candidates of that moment and span (`Recipe.candidates`), if already known.
        """
        return next(iter(self.train_spans(fleet, moment, {training_span: names}, candidates)), None)

    def train_spans(
        self,
        fleet: Fleet,
        moment: int,
        names: Mapping[Nanoseconds, Sequence[str]],
        candidates: TrainingCandidates | None = None,
    ) -> Iterator[TrainedRecipe]:
        """Train on several spans; skip those with too few known positives.

        The fleet is read once, or not at all if every span is cached.

        Parameters
        ----------
        fleet, moment, candidates
            See `train`; the candidates cover all spans.
        names : mapping of Nanoseconds to sequence of str
            The models to fit, by span.
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
                span: undersampled
                for span in spans
                if (undersampled := self._undersampled(fleet, span, candidates)) is not None
            }
            if not enough:
                return {}
            fitted = None if self.start is None else self.start.encoder
            sets = build_training_sets(recipe, fleet, list(enough.values()), fitted)
            return dict(zip(enough, sets, strict=True))

    def _undersampled(
        self, fleet: Fleet, span: Nanoseconds, candidates: TrainingCandidates
    ) -> UndersampledInstances | None:
        """Return the training instances of a span, or None if it has too few positives."""
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
            models = fit_models(self.recipe, training, names, self.catalogue)
        models |= {} if self.start is None else self.start.models
        # The loss weights positives more than the training set does.
        positive = training.balance * self.recipe.positive_weight
        balance = positive / (positive + 1.0 - training.balance)
        return TrainedRecipe(training_span, encoder, models, balance, training.prevalence)


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """An encoder and models trained on the failures of another site.

    The models are not fitted further; they vote together with the models trained here. Fine-tuning
    was tried: with few failures the models forget more than they learn.

    Attributes
    ----------
    encoder : Encoder
        Also used for the models trained here, so that all models get the same inputs.
    models : mapping of str to FailureModel
        By the names of their scores.
    """

    encoder: Encoder
    models: Mapping[str, FailureModel]

    @classmethod
    def from_predictor(cls, predictor: Predictor, plan: FeaturePlan) -> Self:
        """Return the members of a predictor's parallel model, for a training with `plan`.

        Raises
        ------
        InputError
            If the predictor was trained with another feature plan.
        """
        theirs, ours = predictor.encoder.measures.plan.to_dict(), plan.to_dict()
        for name, expected in ours.items():
            if theirs[name] != expected:
                raise InputError(
                    f"its feature plan has {name} {theirs[name]}, expected {expected}."
                )
        members = predictor.committee.parallel
        return cls(
            predictor.encoder, {START_PREFIX + name: predictor.models[name] for name in members}
        )
