"""GPUs that were taken out: another one is in their slot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.records.table import MACHINE, SLOT
from forewarn.features.records.timeline import Timeline

__all__ = ["are_replaced"]


def are_replaced(timeline: Timeline, gpu: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tell of GPUs whether another one was first seen in their slot after their last record.

    One that is silent without a successor may be lost, and is still there.

    Parameters
    ----------
    timeline : Timeline
    gpu : ndarray of shape (n,), int64
        Numbers of GPUs with records.
    """
    records, bounds = timeline.records, timeline.bounds
    if MACHINE not in records.texts or SLOT not in records.texts:
        return np.zeros(len(gpu), dtype=bool)
    known = np.flatnonzero(np.diff(bounds) > 0)
    lasts = bounds[known + 1] - 1
    places = list(
        zip(*(records.codes(name, lasts).tolist() for name in (MACHINE, SLOT)), strict=True)
    )
    newest: dict[tuple[int, int], int] = {}
    first_times = records.line.time_at(bounds[known]).tolist()
    for machine_slot, first in zip(places, first_times, strict=True):
        if min(machine_slot) >= 0:
            newest[machine_slot] = max(first, newest.get(machine_slot, first))
    position = np.searchsorted(known, gpu)
    ends = records.line.time_at(lasts[position]).tolist()
    after = [
        newest.get(places[i], end) > end for i, end in zip(position.tolist(), ends, strict=True)
    ]
    return np.array(after, dtype=bool)
