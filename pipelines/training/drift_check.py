"""Drift of the newest day of records relative to the training span."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from forewarn.evaluation.prediction.metrics.drift import Drift, column_drift
from forewarn.evaluation.prediction.walk_forward.window_scores import instance_batches
from forewarn.features.array_types import Float64Array
from forewarn.features.prediction.instances import Instances, latest_instances
from forewarn.features.records.fleet_timeline import Fleet, Timeline
from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.config.prediction_tables import GateTable
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.location import Location
from forewarn.pipelines.storage.records.record_store import RecordStore
from forewarn.pipelines.storage.registry.drift_report import write_drift

__all__ = [
    "SCORES",
    "ScoringDay",
    "blend_scores",
    "drift_between",
    "moved_columns",
    "report_drift",
    "score_drift",
]

SCORES = "scores of the predictor"

_MAX_COMPARED_ROWS = 6_000_000


@dataclass(frozen=True, slots=True)
class ScoringDay:
    """The newest instance of every GPU, as in a list made now.

    Attributes
    ----------
    fleet : Fleet
    instances : Instances
    scores : ndarray of shape (n_instances,)
        Blend of the new predictor.
    """

    fleet: Fleet
    instances: Instances
    scores: Float64Array

    @classmethod
    def from_store(
        cls, store: RecordStore, step: int, moment: int, predictor: Predictor
    ) -> ScoringDay:
        """Score the instances that end within `step` before `moment`, as a list would."""
        since, plan = moment - step, predictor.encoder.measures.plan
        look = partial(latest_instances, window_records=plan.window_records, since=since)
        fleet = store.read_recent(since - plan.reach, moment, look)
        newest = look(fleet) if isinstance(fleet, Timeline) else fleet.selection
        return cls(fleet, newest, blend_scores(predictor, fleet, newest))


def blend_scores(predictor: Predictor, fleet: Fleet, instances: Instances) -> Float64Array:
    """Return the blend of a predictor for the instances of a fleet, computed in batches."""
    measures = predictor.encoder.measures
    parts = (measures.values(fleet, some) for some in instance_batches(instances))
    return np.concatenate([predictor.scores(values)["blend"] for values in parts])


def drift_between(
    store: RecordStore, kinds: FeatureKinds, training_span: int, moment: int
) -> dict[str, Drift]:
    """Return the drift of every column between the training span and the day before `moment`.

    Counters are compared by their increases, and event codes only by their missing values. In a
    large fleet a sample of the GPUs is compared.
    """
    newest, oldest = moment - DAY, moment - DAY - training_span
    # Increases need the preceding record as well.
    records = store.read_part(oldest - DAY, moment, _MAX_COMPARED_ROWS)
    now, before = (records.rows_between(*span) for span in ((newest, moment), (oldest, newest)))
    drifts = {
        name: column_drift(records.numbers(name, before), records.numbers(name, now))
        for name in (*kinds.float, *kinds.binary)
    }
    for name in (*kinds.counter, *kinds.code):
        counted = column_drift(records.numbers(name, before), records.numbers(name, now))
        # A day without events is normal for a counter.
        state = "" if counted.state == "constant" else counted.state
        drifts[name] = Drift(counted.stability, counted.missing_before, counted.missing_now, state)
    for name in kinds.categorical:
        codes = [records.codes(name, rows).astype(np.float64) for rows in (before, now)]
        moved = column_drift(*(_known(values) for values in codes))
        empty = moved.state if moved.state == "empty" else ""
        drifts[name] = Drift(moved.stability, moved.missing_before, moved.missing_now, empty)
    return drifts


def moved_columns(drifts: Mapping[str, Drift], gate: GateTable) -> dict[str, Drift]:
    """Return the columns whose drift exceeds the limits of the gate."""
    return {
        name: drift
        for name, drift in sorted(drifts.items())
        if drift.stability > gate.drift or drift.missing_now - drift.missing_before > gate.missing
    }


def report_drift(folder: Location, moment: int, moved: Iterable[str]) -> None:
    """Write the drift for systems that act on predictions; note a read-only folder."""
    if not isinstance(folder, Path):  # systems that act do not read object stores
        return
    try:
        write_drift(folder, Nanoseconds(moment), moved)
    except OSError as error:
        note(f"the drift report could not be written to the records folder: {error}")


def score_drift(before: Float64Array, now: Float64Array) -> Drift:
    """Compare the scores of the newest day with those of the last finished window.

    Both are out of time: the recipe that scored the window was trained before it.
    """
    return Drift(column_drift(before, now).stability, 0.0, 0.0)


def _known(codes: Float64Array) -> Float64Array:
    return np.where(codes < 0, np.nan, codes)
