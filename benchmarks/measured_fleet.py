"""Features and labels of a fleet, computed once for `ranking.py`, per retraining."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forewarn.evaluation.prediction.walk_forward.walk_forward import find_scorable_instances
from forewarn.features.array_types import Float64Array, Int8Array, Int64Array, UInt64Array
from forewarn.features.prediction.as_of import as_of
from forewarn.features.prediction.buckets import Buckets
from forewarn.features.prediction.encoder import Encoder
from forewarn.features.prediction.feature_extractor import FeatureExtractor
from forewarn.features.prediction.instances import (
    Instances,
    find_instances,
    label_instances,
    window_without_failures,
)
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import build_timeline
from forewarn.features.records.ordering import sampling_hash
from forewarn.features.records.record_table import MACHINE, Records
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.builtin_rules import rule_scores
from forewarn.models.prediction.training_candidates import instances_known_at
from forewarn.models.prediction.training_set import (
    Recipe,
    UndersampledInstances,
    build_training_sets,
)
from forewarn.pipelines.prediction_job import Job

__all__ = ["ARRAYS", "Study", "Window"]

ARRAYS = ("sequence", "context")
_BATCH_SIZE, _SEED = 60_000, 17
_EPOCH = 719_163  # ordinal of 1970-01-01


@dataclass(frozen=True)
class Window:
    """A retraining: the rows with labels known at that time, and its test rows."""

    moment: int
    known: Int64Array
    labels: Int8Array
    tested: Int64Array


@dataclass(frozen=True)
class Study:
    """One fleet: features of one instance in `keep`, and the scores of the built-in rules.

    A window is represented by three records: the first, the mean and the last.
    """

    recipe: Recipe
    share: float
    keep: int
    half_life: int | None
    longest: int
    serials: Sequence[str]  # by GPU number
    instances: Instances
    measures: FeatureExtractor
    values: InstanceValues
    rules: Float64Array
    machine: Int64Array
    hashes: UInt64Array
    windows: list[Window]

    @classmethod
    def measure(
        cls, job: Job, keep: int, first: int, every: int, measures: FeatureExtractor | None = None
    ) -> Study:
        """Compute the features of the selected instances of a job's records.

        Without `measures`, they are fitted to what the first retraining knew.
        """
        recipe = job.walk_settings.recipe
        days = [date.toordinal() - _EPOCH for date, *_ in job.store.files()]
        records, failures = job.store.read_known(min(days) * DAY, (max(days) + 2) * DAY)
        instances = find_scorable_instances(records, failures, job.walk_settings)
        hashes = sampling_hash(_SEED, records.serials, instances.gpu, instances.end)
        sampled = hashes % np.uint64(keep) == 0
        instances, hashes = instances.select(sampled), hashes[sampled]
        begin, last = (min(days) + first) * DAY, records.last - recipe.horizon
        measures = measures or _measures(recipe, records, failures, begin)
        values, rules = _measured(recipe, measures, records, failures, instances)
        windows = [
            _window(recipe, records, failures, instances, (moment, moment + every * DAY))
            for moment in range(begin, last, every * DAY)
        ]
        windows = [w for w in windows if (instances.label[w.tested] == 1).any()]
        machine = instances.gpu
        if MACHINE in records.texts:
            machine = records.codes(MACHINE, instances.row)
        settings, share = job.walk_settings, job.settings.list.share
        arrays = instances, measures, values, rules, machine.astype(np.int64), hashes
        serials, half_life, longest = records.serials, settings.half_life, settings.longest
        return cls(recipe, share, keep, half_life, longest, serials, *arrays, windows)

    def encoder(self, rows: Int64Array) -> Encoder:
        """Return an encoder with buckets fitted to some rows, like that of each training."""
        values = self.values.select(rows)
        buckets = Buckets.fit(values.sequence), Buckets.fit(values.context)
        return Encoder(self.measures, *buckets, values.columns)


def _measures(
    recipe: Recipe, records: Records, failures: Failures, moment: int
) -> FeatureExtractor:
    timeline = as_of(records, failures, moment, Nanoseconds(moment - records.first))
    every = find_instances(
        timeline,
        window_records=recipe.plan.window_records,
        step_records=recipe.step_records,
        horizon=recipe.horizon,
    )
    past = instances_known_at(every, moment, Nanoseconds(moment - records.first), recipe.horizon)
    encoder, _ = next(
        build_training_sets(
            recipe, timeline, [UndersampledInstances.from_instances(recipe, timeline, past)]
        )
    )
    return encoder.measures


def _measured(
    recipe: Recipe,
    measures: FeatureExtractor,
    records: Records,
    failures: Failures,
    instances: Instances,
) -> tuple[InstanceValues, Float64Array]:
    """Return windows as three records (first, mean and last), and the scores of the rules."""
    timeline, parts, rules = build_timeline(records, failures.as_observed()), [], []
    for begin in range(0, len(instances), _BATCH_SIZE):
        rows = np.arange(begin, min(begin + _BATCH_SIZE, len(instances)))
        values = measures.values(timeline, instances.select(rows))
        rules.append(rule_scores(values, recipe.plan))
        first, last = values.sequence[:, 0], values.sequence[:, -1]
        seen = np.isfinite(values.sequence).sum(axis=1)
        mean = np.where(seen, np.nansum(values.sequence, axis=1) / np.maximum(seen, 1), np.nan)
        window = np.stack([first, mean, last], axis=1).astype(np.float32)
        parts.append(replace(values, sequence=window))
    sequence, context = (np.concatenate([getattr(p, n) for p in parts]) for n in ARRAYS)
    return replace(parts[0], sequence=sequence, context=context), np.concatenate(rules)


def _window(
    recipe: Recipe,
    records: Records,
    failures: Failures,
    instances: Instances,
    span: tuple[int, int],
) -> Window:
    moment, horizon = span[0], recipe.horizon
    timeline = as_of(records, failures, moment, Nanoseconds(moment - records.first))
    gpu, end = instances.gpu, instances.end
    # A failure is known immediately, health only after the horizon. All instances wait until then,
    # so that training data is not biased.
    past = np.flatnonzero(end < moment - horizon)
    labels = label_instances(timeline, gpu[past], end[past], horizon)
    tested = window_without_failures(failures.episodes(), gpu, end, recipe.window_span)
    tested &= (end >= span[0]) & (end < span[1]) & (end <= records.last - horizon)
    tested &= instances.label >= 0
    return Window(moment, past[labels >= 0], labels[labels >= 0], np.flatnonzero(tested))
