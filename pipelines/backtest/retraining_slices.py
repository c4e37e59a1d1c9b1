"""Reading of the records of one retraining in slices, for data sets larger than memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.walk_forward.fleet_survey import FleetSurvey, reading_margin
from forewarn.evaluation.prediction.walk_forward.walk_forward_settings import WalkForwardSettings
from forewarn.features.prediction.instances import Instances, slice_instances
from forewarn.features.records.fleet_timeline import Fleet, FleetSlice, Timeline
from forewarn.features.records.record_table import MACHINE
from forewarn.features.records.text_columns import map_texts
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.training_candidates import TrainingCandidates
from forewarn.pipelines.storage.records.record_store import RecordStore

__all__ = ["RetrainingSlices"]


@dataclass(frozen=True, slots=True)
class RetrainingSlices:
    """Reads the past and the test window of a retraining slice by slice (`SlicedRecords`).

    Attributes
    ----------
    store : RecordStore
    fleet : FleetSurvey
    settings : WalkForwardSettings
    """

    store: RecordStore
    fleet: FleetSurvey
    settings: WalkForwardSettings

    def past(
        self, moment: int, reach: Nanoseconds, spans: Sequence[Nanoseconds]
    ) -> tuple[Fleet, TrainingCandidates]:
        """Return the fleet as of `moment`, `reach` back, and the training candidates."""
        start = moment - reach
        fleet = self.store.read_span(
            (start, moment),
            lambda serials: self.fleet.failures_of(serials).known_before(moment),
            self.settings.recipe.candidate_selector(start, moment, spans),
            margin=self._margin_before(start),
        )
        return fleet, fleet.selection

    def feature_fleet(
        self, moment: int, instances: Instances
    ) -> tuple[Fleet, Instances, npt.NDArray[np.int64] | None]:
        """Return a fleet for computing the features of a test window."""
        tested, settings = _TestWindowReader.for_fleet(self.fleet, instances), self.settings
        start = moment - settings.recipe.plan.reach
        end = min(moment + settings.every, self.fleet.last + 1)
        fleet = self.store.read_span(
            (start, end),
            lambda serials: self.fleet.failures_of(serials).as_observed(),
            tested.find_slice_instances,
            margin=self._margin_before(start),
        )
        return fleet, fleet.selection, tested.machine

    def _margin_before(self, start: int) -> Nanoseconds:
        """Return how much earlier reading starts, limited by the first record."""
        return Nanoseconds(
            max(0, min(reading_margin(self.store.interval), start - self.fleet.first))
        )


@dataclass(slots=True)
class _TestWindowReader:
    """Finds the instances of a test window slice by slice.

    Attributes
    ----------
    fleet : FleetSurvey
    instances : Instances
    machine : ndarray of shape (n,), int64, or None
        Number of each instance's machine, filled in slice by slice; -1 unknown.
    """

    fleet: FleetSurvey
    instances: Instances
    machine: npt.NDArray[np.int64] | None
    _position: dict[str, int] = field(default_factory=dict)

    @classmethod
    def for_fleet(cls, fleet: FleetSurvey, instances: Instances) -> _TestWindowReader:
        """Return a reader before its first slice."""
        if fleet.machines is None:
            return cls(fleet, instances, None)
        position = {machine: number for number, machine in enumerate(fleet.machines)}
        return cls(fleet, instances, np.full(len(instances), -1, dtype=np.int64), position)

    def find_slice_instances(self, timeline: Timeline) -> Instances:
        """Return the instances of a slice with their row numbers; store their machines."""
        records = timeline.records
        part = FleetSlice(timeline, self.fleet.numbers_of(records.serials))
        rows, inside = slice_instances(part, len(self.fleet.serials), self.instances)
        inside = self.fleet.rows_in(records, inside)
        if self.machine is not None and MACHINE in records.texts:
            number = map_texts(records.texts[MACHINE].texts, self._position)
            self.machine[rows] = number[records.codes(MACHINE, inside.row)]
        return inside
