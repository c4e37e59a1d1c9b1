"""Records of a daily list: computed slice by slice, keeping a few rows of each GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import Int64Array
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import (
    Instances,
    latest_instances,
    slice_instances,
)
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Fleet, FleetSlice, Timeline
from forewarn.features.records.slice_merge import merge_slices, select_rows
from forewarn.features.threads import prefetch
from forewarn.pipelines.at_risk.code_events import CodeEvents
from forewarn.pipelines.storage.records.record_store import RecordStore

__all__ = ["DayRecords", "RecordingFleet"]


class DayRecords(NamedTuple):
    """The newest instance of every GPU, and its code events.

    Attributes
    ----------
    fleet : Fleet
        Source of numeric columns.
    timeline : Timeline
        Contains at least some rows of each GPU.
    instances : Instances
        Instances of the timeline.
    events : dict of CodeEvents
    """

    fleet: Fleet
    timeline: Timeline
    instances: Instances
    events: dict[str, CodeEvents]


class _SliceRecords(NamedTuple):
    """Kept data of a slice: a few rows, the numbers of its instances, and those instances."""

    few: FleetSlice
    rows: Int64Array
    instances: Instances
    events: dict[str, CodeEvents]


class RecordingFleet:
    """A `Fleet` that keeps the records a list needs while its slices are read for features.

    Parameters
    ----------
    fleet : Fleet
    instances : Instances
        Newest instance of every GPU.
    plan : FeaturePlan
    """

    def __init__(self, fleet: Fleet, instances: Instances, plan: FeaturePlan) -> None:
        self._fleet, self.instances, self._plan = fleet, instances, plan
        self._parts: list[_SliceRecords] = []
        self._whole: DayRecords | None = None

    @classmethod
    def from_store(
        cls, store: RecordStore, plan: FeaturePlan, at: int, step: int
    ) -> RecordingFleet:
        """Find the instances that end within a step before `at`."""
        look = partial(latest_instances, window_records=plan.window_records, since=at - step)
        # Without hourly features there is nothing to compute by slices.
        hourly = bool(plan.history or plan.peers or plan.residuals)
        fleet = store.read_recent(at - step - plan.reach, at, look, sliced=hourly)
        if isinstance(fleet, Timeline):
            return cls._from_timeline(fleet, look(fleet), plan)
        return cls(fleet, fleet.selection, plan)

    @classmethod
    def _from_timeline(
        cls, timeline: Timeline, instances: Instances, plan: FeaturePlan
    ) -> RecordingFleet:
        """Return the fleet of records that are completely in memory."""
        events = CodeEvents.find_by_column(timeline, instances, plan)
        day = cls(timeline, instances, plan)
        day._whole = DayRecords(timeline, timeline, instances, events)
        return day

    @property
    def serials(self) -> tuple[str, ...]:
        """Serials of all GPUs, sorted."""
        return self._fleet.serials

    @property
    def failures(self) -> Failures:
        """One row per failure, by GPU of the fleet and time."""
        return self._fleet.failures

    @property
    def n_slices(self) -> int:
        """Number of slices."""
        return self._fleet.n_slices

    def slices(self) -> Iterator[FleetSlice]:
        """Yield the slices, prefetching the next one, and keep the records a list needs."""
        return prefetch(map(self._with_notes, self._fleet.slices()))

    def some_gpus(self, gpu: Collection[int], columns: Collection[str]) -> Fleet:
        """Return a fleet of some GPUs, without keeping records."""
        return self._fleet.some_gpus(gpu, columns)

    def _with_notes(self, part: FleetSlice) -> FleetSlice:
        if self._whole is None:
            self._parts.append(self._record_slice(part))
        return part

    def _record_slice(self, part: FleetSlice) -> _SliceRecords:
        rows, inside = slice_instances(part, len(self.serials), self.instances)
        events = CodeEvents.find_by_column(part.timeline, inside, self._plan)
        few, left = select_rows(part, inside.row)
        return _SliceRecords(few, rows, inside.at_rows(np.searchsorted(left, inside.row)), events)

    def records(self) -> DayRecords:
        """Return the kept records. Call it after all slices were read."""
        if self._whole is None:
            self._whole = self._joined()
        return self._whole

    def _joined(self) -> DayRecords:
        timeline, numbers = merge_slices(self._fleet, [part.few for part in self._parts])
        row = np.empty(len(self.instances), dtype=np.int64)
        for part, of_part in zip(self._parts, numbers, strict=True):
            row[part.rows] = of_part[part.instances.row]
        events = {
            name: CodeEvents.joined(
                [(part.events[name], part.rows) for part in self._parts], self.instances.end
            )
            for name in self._plan.kinds.code
        }
        return DayRecords(self._fleet, timeline, self.instances.at_rows(row), events)
