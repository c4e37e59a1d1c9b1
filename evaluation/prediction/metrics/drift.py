"""Drift: the distance of today's inputs from those of the training span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import FloatingArray

__all__ = ["Drift", "column_drift", "population_stability"]

_BINS = 10
# A share of nothing has no logarithm: so little stands for it.
_MIN_BIN_SHARE = 1e-4
# Where a value has had so much of the past, to have all of a day is no news.
_CONSTANT_BEFORE_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class Drift:
    """One input, or one score, then and now.

    Attributes
    ----------
    stability : float
        Population stability index; by convention 0.1 is little and 0.25 is much.
    missing_before, missing_now : float
        Shares.
    state : {"", "constant", "empty"}
        What became of it, if it was something else before.
    """

    stability: float
    missing_before: float
    missing_now: float
    state: str = ""


def population_stability(before: FloatingArray, now: FloatingArray) -> float:
    """Return the population stability index over tenths of `before`; 0 if either is empty.

    sum over bins of (now - before) * log(now / before), shares of each.

    Examples
    --------
    >>> values = np.arange(100.0)
    >>> population_stability(values, values), population_stability(values, values + 1000) > 1
    (0.0, True)
    """
    if not len(before) or not len(now):
        return 0.0
    edges = np.unique(np.quantile(before, np.linspace(0, 1, _BINS + 1)[1:-1]))
    shares = []
    for values in (before, now):
        # Values on an edge belong below it, so that a constant is one bin.
        counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
        shares.append(np.maximum(counts / len(values), _MIN_BIN_SHARE))
    return float(np.sum((shares[1] - shares[0]) * np.log(shares[1] / shares[0])))


def column_drift(before: FloatingArray, now: FloatingArray) -> Drift:
    """Compare a column of the training span with that of a later time; NaN is missing."""
    known = [values[np.isfinite(values)] for values in (before, now)]
    shares = [
        1.0 - len(finite) / len(values) if len(values) else 1.0
        for finite, values in zip(known, (before, now), strict=True)
    ]
    return Drift(population_stability(*known), shares[0], shares[1], _state(*known))


def _state(before: FloatingArray, now: FloatingArray) -> str:
    if len(before) and not len(now):
        return "empty"
    moved = len(before) > 1 and np.ptp(before) > 0
    if not moved or len(now) < 2 or np.ptp(now) > 0:
        return ""
    # A link that seldom runs at less than its full width is not broken by a day at full width.
    return "constant" if np.mean(before == now[0]) < _CONSTANT_BEFORE_SHARE else ""
