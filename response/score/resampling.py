"""Estimates with intervals, by bootstrap over machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.bootstrap import Interval, bootstrap_weights, percentile_interval
from forewarn.features.array_types import Float64Array

__all__ = ["Estimate", "Resampling", "make_estimate", "safe_ratio"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Value with its interval; without a value, `why` is the reason."""

    value: float | None
    interval: Interval | None = None
    why: str = ""


class Resampling:
    """Bootstrap draws of machines; the first row is the fleet itself.

    Parameters
    ----------
    machines : iterable of str
        Machines with data.
    size : int
        Size of the fleet; machines without data are drawn too and contribute 0.
    seed : int
    """

    def __init__(self, machines: Iterable[str], *, size: int, seed: int) -> None:
        names = sorted(set(machines))
        self._numbers = {name: number for number, name in enumerate(names)}
        size = max(len(names), size, 1)
        self._draws = np.vstack([np.ones(size), bootstrap_weights(size, seed=seed)])

    def weights(self, machines: Sequence[str]) -> Float64Array:
        """Return how often each of these machines is drawn, shape (1 + draws, machines)."""
        return self._draws[:, [self._numbers[name] for name in machines]]


def make_estimate(values: Float64Array, why: str = "") -> Estimate:
    """Return the first value with the interval of the others; no value if it is not finite.

    Draws that are all equal, as those of one alert are, tell nothing about the interval.
    """
    if not np.isfinite(values[0]):
        return Estimate(None, None, why)
    interval = percentile_interval(values[1:])
    is_empty = interval is not None and interval[0] == interval[1]
    return Estimate(float(values[0]), None if is_empty else interval)


def safe_ratio(above: Float64Array, below: Float64Array) -> Float64Array:
    """Return above / below; NaN where `below` is 0."""
    safe = np.where(below > 0, below, 1.0)
    return np.where(below > 0, above / safe, np.nan)
