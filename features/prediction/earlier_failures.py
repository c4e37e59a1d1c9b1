"""Earlier failures of an instance's GPU and of its slot, as they were known before its end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.instances import Instances
from forewarn.features.records.failures import NEVER
from forewarn.features.records.table import MACHINE, SLOT
from forewarn.features.records.timeline import Timeline
from forewarn.features.time_units import Nanoseconds

__all__ = ["earlier_failures"]

FloatArray = npt.NDArray[np.float32]


def earlier_failures(
    timeline: Timeline, instances: Instances, reach: Nanoseconds
) -> Iterator[tuple[str, FloatArray]]:
    """Count the failures known before the end of each instance, of its serial and of its slot."""
    serial, failed = (rows.gpu.astype(np.int64) for rows in (instances, timeline.failures))
    always = np.full(len(failed), NEVER)
    yield "failures:serial", _count_known(timeline, instances, serial, failed, always)
    count = np.full(len(instances), np.nan, dtype=np.float32)
    # Records without slots are missing something, but measured alike: a model may meet both.
    if {MACHINE, SLOT} <= set(timeline.records.texts):
        slot = _slot_numbers(timeline, instances.row)
        failed_slot, seen = _slots_of_failures(timeline)
        # Where a GPU sat is known from records only. Every timeline goes back by `reach`, some go
        # farther: what only those show must not count, or a list would differ from a backtest.
        count = _count_known(timeline, instances, slot, failed_slot, seen + reach)
    yield "failures:slot", count


def _slot_numbers(timeline: Timeline, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a number for the (machine, slot) of each row, -1 where either is unknown."""
    machine, slot = (timeline.records.codes(name, rows) for name in (MACHINE, SLOT))
    n_slots = len(timeline.records.texts[SLOT].texts)
    numbers = machine.astype(np.int64) * n_slots + slot
    return np.where((machine < 0) | (slot < 0), -1, numbers)


def _slots_of_failures(
    timeline: Timeline,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each failed GPU sat at its last record before the failure, and when that was.

    The slot is -1 where there is no such record.
    """
    rows = timeline.rows_before_failures()
    known = rows >= 0
    slots, seen = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    slots[known] = _slot_numbers(timeline, rows[known])
    seen[known] = timeline.records.time[rows[known]]
    return slots, seen


def _count_known(
    timeline: Timeline,
    instances: Instances,
    key: npt.NDArray[np.int64],
    failure_key: npt.NDArray[np.int64],
    until: npt.NDArray[np.int64],
) -> FloatArray:
    """Count, per instance, the failures of its key that were known before its end.

    A failure counts for instances that end at its `until` at the latest.
    """
    count = np.zeros(len(instances), dtype=np.float32)
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]
    known = timeline.failures.known_at
    for name, moment, latest in zip(
        failure_key.tolist(), known.tolist(), until.tolist(), strict=True
    ):
        if name >= 0:
            low, high = np.searchsorted(sorted_key, [name, name + 1])
            same = order[low:high]
            end = instances.end[same]
            count[same] += (end > moment) & (end <= latest)
    return count
