"""The newest day of the records, beside the span that was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.drift import Drift, drift_of
from forewarn.evaluation.prediction.walk import Walk
from forewarn.evaluation.prediction.window_scores import measured_parts
from forewarn.features.prediction.instances import Instances, latest_instances
from forewarn.features.records.timeline import Fleet, Timeline
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.config.prediction_tables import GateTable
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.drift_report import write_drift
from forewarn.pipelines.storage.record_store import RecordStore
from forewarn.pipelines.storage.remote_path import Location

__all__ = ["SCORES", "ScoringDay", "blend_of", "drift_between", "moved_columns", "report_drift"]

SCORES = "scores of the predictor"

_COMPARED_ROWS = 6_000_000


@dataclass(frozen=True, slots=True)
class ScoringDay:
    """The newest instance of every GPU that a list made now would hold.

    Attributes
    ----------
    fleet : Fleet
    instances : Instances
    moment : int
    scores : ndarray of shape (n_instances,)
        Blend of the new predictor.
    """

    fleet: Fleet
    instances: Instances
    moment: int
    scores: npt.NDArray[np.float64]

    @classmethod
    def of(cls, store: RecordStore, walk: Walk, moment: int, predictor: Predictor) -> ScoringDay:
        """Score the day before `moment`, from what is read for a list."""
        recipe = walk.settings.recipe
        since, reach = moment - recipe.step, recipe.plan.reach
        look = partial(latest_instances, window_records=recipe.plan.window_records, since=since)
        fleet = store.read_recent(since - reach, moment, look)
        newest = look(fleet) if isinstance(fleet, Timeline) else fleet.selection
        return cls(fleet, newest, moment, blend_of(predictor, fleet, newest))


def blend_of(predictor: Predictor, fleet: Fleet, instances: Instances) -> npt.NDArray[np.float64]:
    """Return how a predictor ranks the instances of a fleet, so many measured at a time."""
    measures = predictor.encoder.measures
    parts = (measures.values(fleet, some) for some in measured_parts(instances))
    return np.concatenate([predictor.scores(values)["blend"] for values in parts])


def drift_between(
    store: RecordStore, walk: Walk, predictor: Predictor, day: ScoringDay
) -> dict[str, Drift]:
    """Return the drift of every column between the training span and the newest day.

    Counters are compared by what they gained; event codes only by what is missing. Of a large
    fleet some of the GPUs are looked at.
    """
    kinds = walk.settings.recipe.plan.kinds
    length = round(predictor.facts.train_length_days * DAY)
    newest, oldest = day.moment - DAY, day.moment - DAY - length
    # A counter gains from one record to the next: the first needs the one before.
    records = store.read_part(oldest - DAY, day.moment, _COMPARED_ROWS)
    now, before = (records.rows_between(*span) for span in ((newest, day.moment), (oldest, newest)))
    drifts = {
        name: drift_of(records.numbers(name, before), records.numbers(name, now))
        for name in (*kinds.float, *kinds.binary)
    }
    for name in (*kinds.counter, *kinds.code):
        counted = drift_of(records.numbers(name, before), records.numbers(name, now))
        # A day without an event is no broken counter.
        state = "" if counted.state == "constant" else counted.state
        drifts[name] = Drift(counted.stability, counted.missing_before, counted.missing_now, state)
    for name in kinds.categorical:
        codes = [records.codes(name, rows).astype(np.float64) for rows in (before, now)]
        moved = drift_of(*(_known(values) for values in codes))
        empty = moved.state if moved.state == "empty" else ""
        drifts[name] = Drift(moved.stability, moved.missing_before, moved.missing_now, empty)
    if walk.windows:
        drifts[SCORES] = _score_drift(walk, day)
    return drifts


def moved_columns(drifts: Mapping[str, Drift], gate: GateTable) -> dict[str, Drift]:
    """Return the columns that have drifted further than the gate allows."""
    return {
        name: drift
        for name, drift in sorted(drifts.items())
        if drift.stability > gate.drift or drift.missing_now - drift.missing_before > gate.missing
    }


def report_drift(folder: Location, moment: int, moved: Iterable[str]) -> None:
    """Tell those who act on predictions; a folder that cannot be written to is said."""
    if not isinstance(folder, Path):  # nobody who acts looks into an object store
        return
    try:
        write_drift(folder, Nanoseconds(moment), moved)
    except OSError as error:
        note(f"what has drifted is not written beside the records: {error}")


def _score_drift(walk: Walk, day: ScoringDay) -> Drift:
    """Compare the scores of the newest day with those of the last finished window.

    Both are out of time: those of the window are by the recipe as it was trained before it.
    """
    before = walk.windows[-1].by_strategy[walk.settings.strategy][1]["blend"]
    moved = drift_of(before, day.scores)
    return Drift(moved.stability, 0.0, 0.0)


def _known(codes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.where(codes < 0, np.nan, codes)
