"""Earlier failures of an instance's GPU and slot, as known before the end of the instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from forewarn.features.array_types import Float32Array, Int64Array
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.failures import NEVER, Failures
from forewarn.features.records.fleet_timeline import Timeline
from forewarn.features.records.record_table import MACHINE, SLOT
from forewarn.features.time_units import Nanoseconds

__all__ = ["Slots", "earlier_failures", "failure_slots", "row_slots"]


class Slots(NamedTuple):
    """Slots of n instances and m failures of a fleet; -1 is unknown.

    Attributes
    ----------
    of_instances : ndarray of shape (n,), int64
    of_failures : ndarray of shape (m,), int64
        Slot at the last record before each failure.
    seen : ndarray of shape (m,), int64
        Time of that record.
    """

    of_instances: Int64Array
    of_failures: Int64Array
    seen: Int64Array

    @classmethod
    def unknown(cls, n_instances: int, n_failures: int) -> Slots:
        """Return slots to be filled in."""
        of_instances, of_failures = (
            np.full(n, -1, dtype=np.int64) for n in (n_instances, n_failures)
        )
        return cls(of_instances, of_failures, np.zeros(n_failures, dtype=np.int64))


def earlier_failures(
    failures: Failures, instances: Instances, slots: Slots | None, reach: Nanoseconds
) -> Iterator[tuple[str, Float32Array]]:
    """Count the failures of the serial and of the slot known before the end of each instance."""
    serial, failed = (rows.gpu.astype(np.int64) for rows in (instances, failures))
    known, always = failures.known_at, np.full(len(failed), NEVER)
    yield "failures:serial", _count_known(known, instances.end, serial, failed, always)
    count = np.full(len(instances), np.nan, dtype=np.float32)
    if slots is not None:
        # The slot of a failure is known from records only. Some timelines go back farther than
        # `reach`; failures that only those show must not count, or a list would differ from a
        # backtest.
        until = slots.seen + reach
        count = _count_known(known, instances.end, slots.of_instances, slots.of_failures, until)
    yield "failures:slot", count


def row_slots(timeline: Timeline, rows: Int64Array) -> Int64Array:
    """Return a number for the (machine, slot) of each row, -1 if either is unknown."""
    machine, slot = (timeline.records.codes(name, rows) for name in (MACHINE, SLOT))
    n_slots = len(timeline.records.texts[SLOT].texts)
    numbers = machine.astype(np.int64) * n_slots + slot
    return np.where((machine < 0) | (slot < 0), -1, numbers)


def failure_slots(
    timeline: Timeline,
) -> tuple[Int64Array, Int64Array]:
    """Return slot and time of the last record before each failure.

    The slot is -1 if there is no such record.
    """
    rows = timeline.rows_before_failures()
    known = rows >= 0
    slots, seen = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    slots[known] = row_slots(timeline, rows[known])
    seen[known] = timeline.records.time[rows[known]]
    return slots, seen


def _count_known(
    known_at: Int64Array,
    end: Int64Array,
    key: Int64Array,
    failure_key: Int64Array,
    until: Int64Array,
) -> Float32Array:
    """Count, per instance, the failures with its key that were known before its end.

    A failure counts for instances that end at or before its `until`.
    """
    count = np.zeros(len(end), dtype=np.float32)
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    for name, moment, latest in zip(
        failure_key.tolist(), known_at.tolist(), until.tolist(), strict=True
    ):
        if name >= 0:
            low, high = np.searchsorted(sorted_key, [name, name + 1])
            same = order[low:high]
            count[same] += (end[same] > moment) & (end[same] <= latest)
    return count
