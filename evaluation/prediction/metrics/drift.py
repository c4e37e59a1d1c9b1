"""Drift: distance between the current inputs and those of the training span."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import FloatingArray

__all__ = ["Drift", "column_drift", "population_stability"]

_BINS = 10
# Minimum share of a bin, because log(0) is undefined.
_MIN_BIN_SHARE = 1e-4
# If a value made up this share of the past, a constant day is normal.
_CONSTANT_BEFORE_SHARE = 0.99


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift of one input or score between training and now.

    Attributes
    ----------
    stability : float
        Population stability index; by convention 0.1 is small and 0.25 is large.
    missing_before, missing_now : float
        Shares.
    state : {"", "constant", "empty"}
        New state of an input that varied, or had values, before.
    """

    stability: float
    missing_before: float
    missing_now: float
    state: str = ""


def population_stability(before: FloatingArray, now: FloatingArray) -> float:
    """Return the population stability index over deciles of `before`; 0 if either is empty.

    It is the sum over bins of (now - before) * log(now / before), where both are shares.

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
        # Values on an edge belong to the bin below, so that a constant is one bin.
        counts = np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1)
        shares.append(np.maximum(counts / len(values), _MIN_BIN_SHARE))
    return float(np.sum((shares[1] - shares[0]) * np.log(shares[1] / shares[0])))


def column_drift(before: FloatingArray, now: FloatingArray) -> Drift:
    """Compare a column in the training span with a later time; NaN is missing."""
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
    # Example: a day at full PCIe link width is normal for a link that is rarely below it.
    return "constant" if np.mean(before == now[0]) < _CONSTANT_BEFORE_SHARE else ""
