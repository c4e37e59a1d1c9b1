"""The records of a daily list: measured slice by slice, a few rows of each GPU stay."""

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
    """The newest instance of every GPU, and its events of codes.

    Attributes
    ----------
    fleet : Fleet
        What columns of numbers are read from.
    timeline : Timeline
        Of some rows of each GPU at least.
    instances : Instances
        Of the timeline.
    events : dict of CodeEvents
    """

    fleet: Fleet
    timeline: Timeline
    instances: Instances
    events: dict[str, CodeEvents]


class _SliceRecords(NamedTuple):
    """What stays of a slice: a few rows, which of all instances it has, and their rows."""

    few: FleetSlice
    rows: Int64Array
    instances: Instances
    events: dict[str, CodeEvents]


class RecordingFleet:
    """A `Fleet` that notes, while its slices are measured, what a list needs beside.

    Parameters
    ----------
    fleet : Fleet
    instances : Instances
        The newest of every GPU.
    plan : Plan
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
        # Without hours to add up nothing is measured by slices.
        hourly = bool(plan.history or plan.peers or plan.residuals)
        fleet = store.read_recent(at - step - plan.reach, at, look, sliced=hourly)
        if isinstance(fleet, Timeline):
            return cls._from_timeline(fleet, look(fleet), plan)
        return cls(fleet, fleet.selection, plan)

    @classmethod
    def _from_timeline(
        cls, timeline: Timeline, instances: Instances, plan: FeaturePlan
    ) -> RecordingFleet:
        """Return the day of records that are in memory as a whole."""
        events = CodeEvents.find_by_column(timeline, instances, plan)
        day = cls(timeline, instances, plan)
        day._whole = DayRecords(timeline, timeline, instances, events)
        return day

    @property
    def serials(self) -> tuple[str, ...]:
        """The serials of all GPUs, sorted."""
        return self._fleet.serials

    @property
    def failures(self) -> Failures:
        """One row per failure, by GPU of the fleet and time."""
        return self._fleet.failures

    @property
    def n_slices(self) -> int:
        """How many slices there are."""
        return self._fleet.n_slices

    def slices(self) -> Iterator[FleetSlice]:
        """Read one slice after another, and note what stays of each, while one is worked on."""
        return prefetch(map(self._with_notes, self._fleet.slices()))

    def some_gpus(self, gpu: Collection[int], columns: Collection[str]) -> Fleet:
        """Return a fleet of some GPUs; nothing of it is noted."""
        return self._fleet.some_gpus(gpu, columns)

    def _with_notes(self, part: FleetSlice) -> FleetSlice:
        if self._whole is None:
            self._parts.append(self._noted(part))
        return part

    def _noted(self, part: FleetSlice) -> _SliceRecords:
        rows, inside = slice_instances(part, len(self.serials), self.instances)
        events = CodeEvents.find_by_column(part.timeline, inside, self._plan)
        few, left = select_rows(part, inside.row)
        return _SliceRecords(few, rows, inside.at_rows(np.searchsorted(left, inside.row)), events)

    def records(self) -> DayRecords:
        """Return what was noted, after all slices were read."""
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
