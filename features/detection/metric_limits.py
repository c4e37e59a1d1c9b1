"""The limits by which a machine metric is scaled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float32Array

__all__ = ["MetricLimits"]


@dataclass(frozen=True, slots=True)
class MetricLimits:
    """Name and limits of a metric (Minder, section 4.1).

    Attributes
    ----------
    name : str
    low, high : float
        What becomes 0 and 1; a value outside is kept, not clipped.
    log : bool
        Take log(1 + x) first, of values and limits alike.
    floor : float
        Share of the way from `low` to `high`: a smaller difference is none to act on.
    counter : bool
        It only counts up: its increase per interval is looked at, and limits are of that.
    """

    name: str
    low: float = 0.0
    high: float = 100.0
    log: bool = False
    floor: float = 0.02
    counter: bool = False

    def scale(self, values: Float32Array) -> Float32Array:
        """Return values on the scale of the limits; what is no finite number becomes NaN.

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
