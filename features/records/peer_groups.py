"""Groups of peers, hour by hour, and the sums of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.compiled import compiled

__all__ = ["Groups", "added_by_group"]

DoubleArray = npt.NDArray[np.float64]
CountArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of peers on a grid.

    Attributes
    ----------
    number : int
    group : ndarray of shape (n_gpus, n_hours)
        Group of each cell, -1 where it has none.
    home : ndarray of shape (n_gpus,)
        Group that the GPU was in all the time, -1 if there is none.
    """

    number: int
    group: CountArray
    home: CountArray


@compiled
def added_by_group(
    hourly: DoubleArray | CountArray, group: CountArray, home: CountArray, n_groups: int
) -> DoubleArray:
    """Add cells up by the group that they belong to, hour by hour.

    A GPU that has been in one group all the time is added as a whole: its other cells hold 0.
    """
    added = np.zeros((n_groups, hourly.shape[1]))
    for gpu in range(hourly.shape[0]):
        if home[gpu] >= 0:
            for hour in range(hourly.shape[1]):
                added[home[gpu], hour] += hourly[gpu, hour]
            continue
        for hour in range(hourly.shape[1]):
            if group[gpu, hour] >= 0:
                added[group[gpu, hour], hour] += hourly[gpu, hour]
    return added
