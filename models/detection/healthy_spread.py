"""Holds what machines of healthy tasks differ by on a metric, and what is forgiven them for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forewarn.features.array_types import Float32Array

__all__ = ["HealthySpread", "Range", "have_stable_names"]

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class HealthySpread:
    """What is usual on a metric in healthy tasks.

    Attributes
    ----------
    deviation : float
        From the others of a task, in the median.
        Never less than what is large enough to act on.
    offset, spread : float
        The most that is forgiven a machine for having always been different.
    still : int
        Ticks of one value that healthy machines show: no sensor hangs for that.
    machines : mapping of str to (float, float)
        Least and greatest offset that is forgiven a machine that many healthy tasks had.
    groups : mapping of str to float
        Of groups that are too small to compare within: what they differ from their tasks by.
    """

    deviation: float = 0.0
    offset: float = np.inf
    spread: float = np.inf
    still: int = 0
    machines: Mapping[str, Range] = field(default_factory=dict)
    groups: Mapping[str, float] = field(default_factory=dict)

    def bounds(self, machines: Sequence[str]) -> tuple[Float32Array, Float32Array]:
        """Return the least and the greatest offset that is forgiven each machine."""
        most = self.offset
        ranges = [self.machines.get(machine, (-most, most)) for machine in machines]
        bounds = np.clip(np.array(ranges, dtype=np.float32).reshape(-1, 2), -most, most)
        return bounds[:, 0], bounds[:, 1]


def have_stable_names(spreads: Iterable[HealthySpread]) -> bool:
    """Tell whether machines have the same names in each task of a site.

    Where names are given anew, as ranks are, what a machine differs by follows its name on no
    metric.
    """
    return any(spread.machines for spread in spreads)
