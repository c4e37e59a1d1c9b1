"""Events of a code column, such as Xids, before the instances of a day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array, Int64Array
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.time_units import HOUR, Nanoseconds

__all__ = ["CodeEvents"]

_MAX_CODES = 60  # columns with more distinct values are not treated as codes


@dataclass(frozen=True)
class CodeEvents:
    """Events by instance and time.

    Attributes
    ----------
    n : int
        Number of instances.
    row : ndarray of shape (m,)
        Instance of each event.
    code : ndarray of shape (m,)
    time : ndarray of shape (m,)
        Nanoseconds since 1970 UTC.
    end : ndarray of shape (n,)
        End of each instance.
    """

    n: int
    row: Int64Array
    code: Float32Array
    time: Int64Array
    end: Int64Array

    @classmethod
    def find_by_column(
        cls, timeline: Timeline, instances: Instances, plan: FeaturePlan
    ) -> dict[str, CodeEvents]:
        """Find the events of each code column within the longest span of a plan."""
        longest = Nanoseconds(max((1, *plan.history)) * plan.window)
        return {name: cls.find(timeline, instances, name, longest) for name in plan.kinds.code}

    @classmethod
    def find(
        cls, timeline: Timeline, instances: Instances, name: str, span: Nanoseconds
    ) -> CodeEvents:
        """Find the events within `span` before each instance, since the last repair of its GPU."""
        records = timeline.records
        codes = records.values(name)
        happened = np.flatnonzero((codes > 0) & timeline.counted)
        instance_of = np.full(len(records.serials), -1, dtype=np.int64)
        instance_of[instances.gpu] = np.arange(len(instances))
        row = instance_of[records.gpu[happened]]
        happened, row = happened[row >= 0], row[row >= 0]
        time = records.time[happened]
        begin = np.maximum(timeline.life_start(instances.row), instances.end - span)
        near = (time > begin[row]) & (time <= instances.end[row])
        return cls(len(instances), row[near], codes[happened[near]], time[near], instances.end)

    @classmethod
    def joined(cls, parts: Sequence[tuple[CodeEvents, Int64Array]], end: Int64Array) -> CodeEvents:
        """Join the events of slices by instance and time.

        Parameters
        ----------
        parts : sequence of (CodeEvents, ndarray)
            Events of each slice, and the numbers of its instances among all.
        end : ndarray of shape (n,)
            End of all instances.
        """
        row = np.concatenate([rows[events.row] for events, rows in parts])
        order = np.argsort(row, kind="stable")
        code, time = (
            np.concatenate([getattr(events, name) for events, _ in parts])[order]
            for name in ("code", "time")
        )
        return cls(len(end), row[order], code, time, end)

    @cached_property
    def distinct(self) -> tuple[float, ...]:
        """The codes that occur; empty if there are too many."""
        codes = np.unique(self.code)
        return tuple(codes.tolist()) if len(codes) <= _MAX_CODES else ()

    def counted(self, code: float) -> Float64Array:
        """Return the number of events of a code for each instance."""
        return np.bincount(self.row[self.code == code], minlength=self.n).astype(np.float64)

    def hours_since(self, code: float) -> Float64Array:
        """Return the hours since the last event of a code; inf if there was none."""
        last = np.full(self.n, np.iinfo(np.int64).min)
        same = self.code == code
        np.maximum.at(last, self.row[same], self.time[same])
        never = last == np.iinfo(np.int64).min
        return np.where(never, np.inf, (self.end - np.where(never, 0, last)) / HOUR)

    def for_instance(self, row: int) -> list[tuple[int, int]]:
        """Return time and code of the events of one instance, by time."""
        same = np.flatnonzero(self.row == row)
        pairs = zip(self.time[same].tolist(), self.code[same].tolist(), strict=True)
        return sorted((time, int(code)) for time, code in pairs)
