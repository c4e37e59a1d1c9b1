"""Training sets as of a moment t: selected instances, their features and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import (
    Float32Array,
    Float64Array,
    Int8Array,
    Int64Array,
    UInt64Array,
)
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.fleet_reading import FleetReading
from forewarn.features.prediction.instances import Instances, find_instances, hours_to_failure
from forewarn.features.prediction.model_inputs import InstanceValues, ModelInputs
from forewarn.features.records.fleet_timeline import Fleet
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.time_units import HOUR, Nanoseconds, RecordCount
from forewarn.models.prediction.hyperparameters import Hyperparameter
from forewarn.models.prediction.training_candidates import (
    KnownCounts,
    TrainingBudget,
    TrainingCandidates,
    smallest_hashes,
    smallest_hashes_among,
    undersample_positives,
)

__all__ = [
    "Recipe",
    "TrainingSet",
    "UndersampledInstances",
    "build_training_sets",
]


# The paper undersamples negatives and repeats positives until both are equally many. Here this many
# negatives are kept per positive, and the weight of a positive replaces its repetition. Trees are
# fast enough for more negatives (`Recipe.tree_negatives`).
_MAX_POSITIVE_REPEATS = 10.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings of a training except records, moment and training span.

    Attributes
    ----------
    plan : FeaturePlan
    step, horizon : Nanoseconds
        Between two instances of a GPU, and after an instance.
    cascade_model : str
        Model that comes first in the cascade.
    negatives_per_positive : float
        Total weight of the negatives per unit weight of positives; 0 keeps all with weight 1.
    positive_weight, cascade_positive_weight : float
        Factors of the positives in the loss.
    seed : int
    tree_negatives : float
        Negatives per positive in the training set of trees: the top of a list is decided among rare
        healthy instances. Their total weight does not depend on it.
    half_life : Nanoseconds or None
        Age, relative to the newest training instance, at which the weight of an instance is halved;
        None: no age weighting.
    max_instances : int
        Size limit of a training set, which bounds the cost of training on large fleets; 0: no
        limit.
    hyperparameters : mapping of str to mapping
        Those that differ from the default, by model.
    packages : mapping of str to str
        Package and version of the plug-in models, by model.
    """

    plan: FeaturePlan
    step: Nanoseconds
    horizon: Nanoseconds
    cascade_model: str
    negatives_per_positive: float
    positive_weight: float
    cascade_positive_weight: float
    seed: int
    tree_negatives: float = _MAX_POSITIVE_REPEATS
    half_life: Nanoseconds | None = None
    max_instances: int = 0
    hyperparameters: Mapping[str, Mapping[str, Hyperparameter]] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)

    @property
    def step_records(self) -> RecordCount:
        """Records between two instances of a GPU."""
        return RecordCount(self.step // self.plan.interval)

    @property
    def window_span(self) -> Nanoseconds:
        """Time from the first record of a window to its last."""
        return Nanoseconds((self.plan.window_records - 1) * self.plan.interval)

    def instances(self, fleet: Fleet, since: int | None = None) -> Instances:
        """Find every instance of a fleet, or those that end at or after a moment."""
        return find_instances(
            fleet,
            window_records=self.plan.window_records,
            step_records=self.step_records,
            horizon=self.horizon,
            since=since,
        )

    def candidates(
        self, fleet: Fleet, moment: int, spans: Sequence[Nanoseconds], since: int | None = None
    ) -> TrainingCandidates:
        """Return the candidates for trainings on some spans before `moment`, of a fleet or a slice.

        Only instances that end at or after `since` are included.
        """
        every = self.instances(fleet, since)
        hashes = sampling_hash(self.seed, fleet.serials, every.gpu, every.end)
        return TrainingCandidates.from_instances(
            every, hashes, moment, self.horizon, spans, self.max_instances
        )

    def candidate_selector(
        self, start: int | None, moment: int, spans: Sequence[Nanoseconds]
    ) -> Callable[[Fleet], TrainingCandidates]:
        """Return a function that finds the candidates that need no record before `start`."""
        since = None if start is None else start + self.plan.reach
        return lambda fleet: self.candidates(fleet, moment, spans, since)


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Encoded training instances, by serial and time.

    Attributes
    ----------
    inputs : ModelInputs of n instances
    labels : ndarray of shape (n,), int8
    weights : ndarray of shape (n,), float32
    ends : ndarray of shape (n,), int64
    prevalence : float
        Share of positives among all instances known at t, before undersampling.
    few : TrainingSet or None
        A version with fewer negatives for slow models; None: use this one.
    """

    inputs: ModelInputs
    labels: Int8Array
    weights: Float32Array
    ends: Int64Array
    prevalence: float
    few: TrainingSet | None = None

    @property
    def balance(self) -> float:
        """Share of the positives in the total weight."""
        return float(self.weights[self.labels == 1].sum() / self.weights.sum())


def _weights(labels: Int8Array, ratio: float, age_weights: Float64Array) -> Float32Array:
    """Return weights with which the negatives weigh `ratio` times as much as the positives."""
    positive, weights = labels == 1, age_weights.copy()
    if ratio > 0 and positive.any():
        weights[positive] *= weights[~positive].sum() / (ratio * weights[positive].sum())
    return np.asarray(weights / weights.mean(), dtype=np.float32)


def _age_weights(ends: Int64Array, half_life: Nanoseconds | None) -> Float64Array:
    """Return the age weight of each instance."""
    if half_life is None:
        return np.ones(len(ends))
    return np.asarray(0.5 ** ((ends.max() - ends) / half_life))


class UndersampledInstances(NamedTuple):
    """The instances selected from those known at t; the others can be dropped.

    Attributes
    ----------
    chosen : Instances
        n instances, the training set of trees.
    few : ndarray of shape (m,), int64
        Rows of `chosen` that form the training set of slower models.
    prevalence : float
        Share of positives before undersampling.
    """

    chosen: Instances
    few: Int64Array
    prevalence: float

    @classmethod
    def from_instances(
        cls,
        recipe: Recipe,
        fleet: Fleet,
        instances: Instances,
        counts: KnownCounts | None = None,
    ) -> UndersampledInstances:
        """Undersample the instances known at t (`instances_known_at`), which include a positive.

        `counts` are the counts of all of them if `instances` holds candidates only.
        """
        counts = counts or KnownCounts.from_instances(instances)
        chosen, few = _undersample(recipe, fleet, instances, counts)
        return cls(chosen, few, counts.prevalence)


def build_training_sets(
    recipe: Recipe,
    fleet: Fleet,
    several: Sequence[UndersampledInstances],
    encoder: Encoder | None = None,
) -> Iterator[tuple[Encoder, TrainingSet]]:
    """Compute and encode the features of several training sets in one pass over the fleet.

    Parameters
    ----------
    recipe : Recipe
    fleet : Fleet
        As of t.
    several : sequence of UndersampledInstances
        The instances of each training set, known at t.
    encoder : Encoder, optional
        A fitted encoder; by default one is fitted to each training set.
    """
    union, rows = Instances.union([undersampled.chosen for undersampled in several])
    reading = FleetReading.from_fleet(recipe.plan, fleet, union, with_codes=encoder is None)
    for undersampled, own in zip(several, rows, strict=True):
        fitted, values = _extract_features(reading, own, encoder)
        yield fitted, _training_set(recipe, undersampled, fitted.encode(values))


def _extract_features(
    reading: FleetReading, rows: Int64Array, encoder: Encoder | None
) -> tuple[Encoder, InstanceValues]:
    """Return the features of some instances, and an encoder fitted to them if there is none yet."""
    measures = FeatureExtractor.fit_to(reading, rows) if encoder is None else encoder.measures
    values = measures.values_of(reading)
    values = values if len(rows) == len(values) else values.select(rows)
    return encoder or Encoder.from_values(measures, values), values


def _training_set(
    recipe: Recipe, undersampled: UndersampledInstances, inputs: ModelInputs
) -> TrainingSet:
    chosen, few, prevalence = undersampled
    age_weights = _age_weights(chosen.end, recipe.half_life)

    def select(inputs: ModelInputs, rows: Int64Array) -> TrainingSet:
        labels = chosen.label[rows]
        weights = _weights(labels, recipe.negatives_per_positive, age_weights[rows])
        return TrainingSet(inputs, labels, weights, chosen.end[rows], prevalence)

    training = select(inputs, np.arange(len(chosen)))
    if len(few) < len(chosen):
        training = replace(training, few=select(inputs.select(few), few))
    return training


def _undersample(
    recipe: Recipe, fleet: Fleet, instances: Instances, counts: KnownCounts
) -> tuple[Instances, Int64Array]:
    """Return the training instances of trees, and which of them slower models use."""
    ratio = recipe.negatives_per_positive
    if ratio == 0 and not recipe.max_instances:
        return instances, np.arange(len(instances))
    hashes = sampling_hash(recipe.seed, fleet.serials, instances.gpu, instances.end)
    most = np.inf if ratio == 0 else max(ratio, _MAX_POSITIVE_REPEATS, recipe.tree_negatives)
    positives, room = _undersample_positives(recipe, fleet, instances, hashes, counts, most)
    stay = smallest_hashes_among(instances.label != 1, hashes, room)
    slow = len(stay) if ratio == 0 else round(max(ratio, _MAX_POSITIVE_REPEATS) * len(positives))
    chosen = np.sort(np.append(positives, stay))
    few = np.append(positives, smallest_hashes(stay, hashes, slow))
    return instances.select(chosen), np.searchsorted(chosen, np.sort(few))


def _undersample_positives(
    recipe: Recipe,
    fleet: Fleet,
    instances: Instances,
    hashes: UInt64Array,
    counts: KnownCounts,
    ratio: float,
) -> tuple[Int64Array, int]:
    """Return the selected positives, and the number of negatives there is room for."""
    rows = np.flatnonzero(instances.label == 1)
    gpu, end = instances.gpu[rows], instances.end[rows]
    hours = hours_to_failure(fleet, gpu, end, recipe.horizon)
    fails_at = end + np.round(hours * HOUR).astype(np.int64)
    failure = np.unique(np.column_stack([gpu, fails_at]), axis=0, return_inverse=True)[1].ravel()
    limit, n_failures = min(ratio, counts.negatives / len(rows)), int(failure.max()) + 1
    budget = TrainingBudget.allocate(
        recipe.max_instances, failures=n_failures, ratio=limit, **counts._asdict()
    )
    if budget.positives < len(rows):
        of_failure = sampling_hash(recipe.seed, fleet.serials, gpu, fails_at)
        rows = rows[undersample_positives(failure, of_failure, hashes[rows], budget.positives)]
    return rows, budget.negatives
