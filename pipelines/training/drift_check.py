"""The newest day of the records, beside the span that was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.drift import Drift, drift_of
from forewarn.evaluation.prediction.walk import Walk
from forewarn.features.prediction.instances import Instances, latest_instances
from forewarn.features.records.timeline import Timeline
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.config.prediction_tables import GateTable
from forewarn.pipelines.prediction_job import Job
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.drift_report import write_drift

__all__ = ["SCORES", "ScoringDay", "drift_between", "moved_columns", "report_drift"]

SCORES = "scores of the predictor"


@dataclass(frozen=True, slots=True)
class ScoringDay:
    """The newest instance of every GPU that a list made now would hold.

    Attributes
    ----------
    timeline : Timeline
    instances : Instances
    moment : int
    scores : ndarray of shape (n_instances,)
        Blend of the new predictor.
    """

    timeline: Timeline
    instances: Instances
    moment: int
    scores: npt.NDArray[np.float64]

    @classmethod
    def of(cls, walk: Walk, timeline: Timeline, moment: int, predictor: Predictor) -> ScoringDay:
        """Score the day before `moment`."""
        recipe = walk.settings.recipe
        newest = latest_instances(
            timeline, window_records=recipe.plan.window_records, since=moment - recipe.step
        )
        values = predictor.encoder.measures.values(timeline, newest)
        return cls(timeline, newest, moment, predictor.scores(values)["blend"])


def drift_between(walk: Walk, predictor: Predictor, day: ScoringDay) -> dict[str, Drift]:
    """Return the drift of every column between the training span and the newest day.

    Counters are compared by what they gained; event codes only by what is missing.
    """
    records, kinds = walk.records, walk.settings.recipe.plan.kinds
    length = round(predictor.facts["train_length_days"] * DAY)
    now = records.rows_between(day.moment - DAY, day.moment)
    before = records.rows_between(day.moment - DAY - length, day.moment - DAY)
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


def report_drift(job: Job, moment: int, drifts: Mapping[str, Drift]) -> None:
    """Tell those who act on predictions; a folder that cannot be written to is said."""
    moved, folder = moved_columns(drifts, job.settings.gate), job.store.folder
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
