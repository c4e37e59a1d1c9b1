"""Slot conflicts: two GPUs that report one slot of a machine at the same time."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forewarn.features.time_units import MINUTE

__all__ = ["SlotConflict", "slot_conflicts"]

_SAME_TIME_TOLERANCE = MINUTE
_KEYS = ["machine_id", "slot", "tick"]


class SlotConflict(NamedTuple):
    """A slot of a machine, and the first two GPUs by name that report it simultaneously."""

    machine_id: str
    slot: int
    gpus: tuple[str, str]


def slot_conflicts(readings: pa.Table, ticks: npt.NDArray[np.int64]) -> set[SlotConflict]:
    """Return the slots that two GPUs report within a minute.

    A replacement within an interval is no conflict, since the GPUs follow each other.

    Parameters
    ----------
    readings : pyarrow.Table
        With the names of GPUs.
    ticks : ndarray of int64
        Ends of their intervals.
    """
    rows = readings.select(["machine_id", "slot", "gpu_serial", "timestamp"])
    rows = rows.append_column("tick", pa.array(ticks)).drop_null()
    by_slot = rows.group_by(_KEYS, use_threads=False)
    counts = by_slot.aggregate([("gpu_serial", "count_distinct")])
    shared = counts.filter(pc.greater(counts["gpu_serial_count_distinct"], 1)).select(_KEYS)
    if not len(shared):
        return set()
    seen: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    rows = rows.join(shared, _KEYS, join_type="inner", use_threads=False)
    times = rows["timestamp"].cast(pa.int64()).to_pylist()
    names = (rows[name].to_pylist() for name in ("machine_id", "slot", "gpu_serial"))
    for machine, slot, gpu, time in zip(*names, times, strict=True):
        seen[machine, slot].append((time, gpu))
    return {
        SlotConflict(machine, slot, pair)
        for (machine, slot), claims in seen.items()
        if (pair := _first_simultaneous_pair(sorted(claims))) is not None
    }


def _first_simultaneous_pair(claims: list[tuple[int, str]]) -> tuple[str, str] | None:
    """Return the first two GPUs at most a minute apart; claims are sorted by time."""
    latest: dict[str, int] = {}
    for time, gpu in claims:
        others = [other for other, seen in latest.items() if time - seen <= _SAME_TIME_TOLERANCE]
        others = [other for other in others if other != gpu]
        if others:
            return min(gpu, *others), max(gpu, *others)
        latest[gpu] = time
    return None
