"""How much healthy machines differ on one metric, and which differences are tolerated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forewarn.features.array_types import Float32Array

__all__ = ["HealthySpread", "Range", "have_stable_names"]

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class HealthySpread:
    """Differences between machines of healthy tasks on one metric.

    Attributes
    ----------
    deviation : float
        Median deviation of a machine from its peers.
        At least the smallest difference worth acting on.
    offset, spread : float
        Largest offset and spread that are tolerated in a machine that always had them.
    still : int
        Longest run of one value, in ticks, that healthy machines show; a sensor is not frozen
        below it.
    machines : mapping of str to (float, float)
        Tolerated range of offsets of each machine that was in many healthy tasks.
    groups : mapping of str to float
        Offset of each group that is too small for comparison within the group, from its task.
    """

    deviation: float = 0.0
    offset: float = np.inf
    spread: float = np.inf
    still: int = 0
    machines: Mapping[str, Range] = field(default_factory=dict)
    groups: Mapping[str, float] = field(default_factory=dict)

    def bounds(self, machines: Sequence[str]) -> tuple[Float32Array, Float32Array]:
        """Return the smallest and the largest tolerated offset of each machine."""
        most = self.offset
        ranges = [self.machines.get(machine, (-most, most)) for machine in machines]
        bounds = np.clip(np.array(ranges, dtype=np.float32).reshape(-1, 2), -most, most)
        return bounds[:, 0], bounds[:, 1]


def have_stable_names(spreads: Iterable[HealthySpread]) -> bool:
    """Tell whether a machine keeps its name from task to task.

    If names are assigned per task, as ranks are, no metric has offsets that follow the name.
    """
    return any(spread.machines for spread in spreads)
