"""The limits that a machine metric is scaled by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.features.detection.metric_role import Role

__all__ = ["MetricLimits"]


@dataclass(frozen=True, slots=True)
class MetricLimits:
    """Name and limits of a metric (Minder, section 4.1).

    Attributes
    ----------
    name : str
    low, high : float
        Values that become 0 and 1; values outside are kept, not clipped.
    log : bool
        Apply log(1 + x) to values and limits first.
    floor : float
        Smallest difference worth acting on, as a share of the distance from `low` to `high`.
    counter : bool
        The metric only increases; limits apply to its increase per interval.
    role : str
        What the metric says of a machine.
    """

    name: str
    low: float = 0.0
    high: float = 100.0
    log: bool = False
    floor: float = 0.02
    counter: bool = False
    role: Role = "other"

    def scale(self, values: Float32Array) -> Float32Array:
        """Return scaled values; values that are not finite become NaN.

        Examples
        --------
        >>> MetricLimits("cpu_usage").scale(np.array([0.0, 50.0, 150.0], np.float32)).tolist()
        [0.0, 0.5, 1.5]
        """
        finite = np.where(np.isfinite(values), values, np.float32(np.nan))
        low, high = self.low, self.high
        if self.log:
            finite = np.log1p(np.maximum(finite, np.float32(0.0)))
            low, high = np.log1p(low), np.log1p(high)
        return ((finite - np.float32(low)) * np.float32(1.0 / (high - low))).astype(np.float32)
