"""All instances of a fleet, found span by span; the state of each series is carried over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.prediction.walk_forward.fleet_survey import FleetSurvey, ReadSpan, Span
from forewarn.features.array_types import BoolArray, Int8Array, Int32Array, Int64Array
from forewarn.features.compiled import compiled
from forewarn.features.prediction.instances import Instances, label_instances
from forewarn.features.records.failures import Failures
from forewarn.features.records.fleet_timeline import Timeline, build_timeline
from forewarn.features.records.record_table import Records
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.training_set import Recipe

__all__ = ["InstanceSurvey", "survey_instances"]

_NEVER_SEEN = int(np.iinfo(np.int64).min)
_LABEL_BATCH_SIZE = 1 << 21  # instances labelled at a time


@dataclass(frozen=True)
class InstanceSurvey:
    """Every instance that production would have scored, labelled with full knowledge.

    Attributes
    ----------
    instances : Instances
        By GPU and time, without row numbers.
    n_records, filled, gaps : int
        Number of records, of filled single gaps, and of longer gaps.
    seen_before : dict of int to ndarray of shape (n_gpus,)
        Last record of each GPU before some moments.
    """

    instances: Instances
    n_records: int
    filled: int
    gaps: int
    seen_before: Mapping[int, Int64Array]


def survey_instances(
    read: ReadSpan,
    spans: Sequence[Span],
    margin: Nanoseconds,
    fleet: FleetSurvey,
    recipe: Recipe,
    moments: Sequence[int] = (),
) -> InstanceSurvey:
    """Find and label all instances, independent of the spans in which records are read.

    Parameters
    ----------
    read, spans, margin
        See `survey_fleet`.
    fleet : FleetSurvey
    recipe : Recipe
    moments : sequence of int
        Moments for `seen_before`.
    """
    surveyor = _Surveyor.for_fleet(fleet, recipe, moments)
    for number, span in enumerate(spans):
        surveyor.process(fleet.numbered(read(span.extended_before(margin if number else 0))))
    gpu, end = _by_gpu(surveyor.ends)
    labels = _labels(fleet.truth, gpu, end, recipe.horizon)
    rows = np.broadcast_to(np.int64(-1), len(gpu))
    return InstanceSurvey(
        Instances(rows, gpu, end, labels),
        surveyor.n_records,
        surveyor.filled,
        surveyor.gaps,
        surveyor.seen_before,
    )


def _by_gpu(spans: list[tuple[Int64Array, Int64Array]]) -> tuple[Int32Array, Int64Array]:
    """Merge the ends of all spans by GPU and time, and free those of each span."""
    n_ends = np.sum([number for number, _ in spans], axis=0)
    free, end = np.cumsum(n_ends) - n_ends, np.empty(int(n_ends.sum()), dtype=np.int64)
    while spans:
        _put_ends(*spans.pop(0), free, end)
    return np.repeat(np.arange(len(n_ends), dtype=np.int32), n_ends), end


@compiled
def _put_ends(n_ends: Int64Array, end: Int64Array, free: Int64Array, room: Int64Array) -> None:
    """Copy the ends of each GPU to its next free places."""
    first = 0
    for gpu in range(len(n_ends)):
        for number in range(n_ends[gpu]):
            room[free[gpu] + number] = end[first + number]
        first += n_ends[gpu]
        free[gpu] += n_ends[gpu]


def _labels(truth: Timeline, gpu: Int32Array, end: Int64Array, horizon: Nanoseconds) -> Int8Array:
    """Label in batches, because labelling needs several times the memory of the labels."""
    labels = np.empty(len(end), dtype=np.int8)
    for first in range(0, len(end), _LABEL_BATCH_SIZE):
        some = slice(first, first + _LABEL_BATCH_SIZE)
        labels[some] = label_instances(truth, gpu[some], end[some], horizon)
    return labels


@dataclass(slots=True)
class _Surveyor:
    """State between two spans: last record of each GPU and its position in its series.

    For each processed span it holds the number of instances per GPU, and their ends by GPU and
    time.
    """

    recipe: Recipe
    failures: Failures
    last: Int64Array
    position: Int64Array
    ends: list[tuple[Int64Array, Int64Array]]
    seen_before: dict[int, Int64Array]
    n_records: int = 0
    filled: int = 0
    gaps: int = 0

    @classmethod
    def for_fleet(cls, fleet: FleetSurvey, recipe: Recipe, moments: Sequence[int]) -> _Surveyor:
        never = np.full(len(fleet.serials), _NEVER_SEEN)
        # A failure that was unknown at the time did not exclude a GPU from scoring.
        seen_before = {moment: never.copy() for moment in moments}
        return cls(recipe, fleet.failures.as_observed(), never, never * 0, [], seen_before)

    def process(self, records: Records) -> None:
        """Process the records of the next span, which start some time before it."""
        timeline = build_timeline(records, self.failures)
        gpu, time = records.gpu, records.time
        fresh = time > self.last[gpu]
        position = self._positions(timeline)
        rows = np.flatnonzero(fresh & self._ends(timeline, position))
        self.ends.append((np.bincount(gpu[rows], minlength=len(self.last)), time[rows]))
        self._count(records, fresh)
        self._advance(records, timeline.bounds, position)

    def _positions(self, timeline: Timeline) -> Int64Array:
        """Return the position of each record in its series, including earlier spans."""
        records = timeline.records
        position = timeline.position.astype(np.int64)
        begins = np.arange(len(records)) - position
        of_row = records.gpu
        known = np.flatnonzero((records.time == self.last[of_row]) & ~records.filled)
        gpu = of_row[known]
        earlier, series = np.zeros_like(self.last), np.full_like(self.last, -1)
        earlier[gpu] = self.position[gpu] - position[known]
        series[gpu] = begins[known]
        return position + np.where(begins == series[of_row], earlier[of_row], 0)

    def _ends(self, timeline: Timeline, position: Int64Array) -> BoolArray:
        """Return at which rows an instance ends, by position in the series."""
        filled, alive = timeline.records.filled, timeline.alive
        length, step = self.recipe.plan.window_records, self.recipe.step_records
        due = alive & (position >= length - 1) & ((position - length + 1) % step == 0)
        late = np.append(False, (due & filled)[:-1])[: len(due)] & (position >= length)
        ends: BoolArray = (due & ~filled) | late
        return ends

    def _count(self, records: Records, fresh: BoolArray) -> None:
        gpu, time, filled = records.gpu, records.time, records.filled
        before = np.roll(time, 1)
        first = np.append(True, np.diff(gpu) != 0)[: len(records)]
        before[first] = self.last[gpu[first]]
        apart = 2 * (time - before) >= 5 * records.interval
        self.gaps += int(np.count_nonzero(apart & fresh & (before != _NEVER_SEEN)))
        self.filled += int(np.count_nonzero(fresh & filled))
        self.n_records += int(np.count_nonzero(fresh & ~filled))

    def _advance(self, records: Records, bounds: Int64Array, position: Int64Array) -> None:
        present = np.flatnonzero(np.diff(bounds))
        first, time, filled = bounds[present], records.time, records.filled
        for moment, seen in self.seen_before.items():
            before = np.where((time < moment) & ~filled, time, _NEVER_SEEN)
            seen[present] = np.maximum(seen[present], np.maximum.reduceat(before, first))
        newest = bounds[present + 1] - 1
        self.last[present], self.position[present] = time[newest], position[newest]
