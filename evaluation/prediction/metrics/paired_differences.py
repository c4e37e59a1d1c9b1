"""Differences between methods that were evaluated on the same machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.features.array_types import Float64Array

__all__ = ["Differences", "PairedDifference", "paired_differences"]


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """How much higher a metric of one method is than that of another.

    Attributes
    ----------
    difference : float
    interval : tuple of float or None
        From the same bootstrap draws of machines for both methods. It is narrower than the
        intervals of the two values suggest, because hard machines are hard for both.
    """

    difference: float
    interval: tuple[float, float] | None = None

    def __neg__(self) -> PairedDifference:
        """Return the difference of the other method to the first one."""
        if self.interval is None:
            return PairedDifference(-self.difference)
        return PairedDifference(-self.difference, (-self.interval[1], -self.interval[0]))

    @property
    def verdict(self) -> str:
        """`better`, `worse` (higher is better), `not distinguishable` or `not comparable`.

        Examples
        --------
        >>> PairedDifference(0.1, (0.02, 0.2)).verdict, PairedDifference(0.1, (-0.1, 0.3)).verdict
        ('better', 'not distinguishable')
        """
        if self.interval is None:
            return "not comparable"
        low, high = self.interval
        return "better" if low > 0.0 else "worse" if high < 0.0 else "not distinguishable"


Differences = Mapping[str, Mapping[str, PairedDifference]]
"""Difference of a method to each method after it."""


def paired_differences(
    values: Mapping[str, float | None], draws: Mapping[str, Float64Array]
) -> dict[str, dict[str, PairedDifference]]:
    """Compare methods by the same strategy, and the same method by several strategies.

    Parameters
    ----------
    values : mapping of str to (float or None)
        Metric by `NAME_STRATEGY`; methods without a value are left out.
    draws : mapping of str to ndarray of shape (n_draws,)
        The metric for the same bootstrap draws of machines; empty without any.
    """
    differences: dict[str, dict[str, PairedDifference]] = {}
    for first, second in combinations(values, 2):
        value, other = values[first], values[second]
        if value is None or other is None or not _comparable(first, second):
            continue
        paired = len(draws[first]) > 0 and len(draws[second]) > 0
        bounds = percentile_interval(draws[first] - draws[second]) if paired else None
        differences.setdefault(first, {})[second] = PairedDifference(value - other, bounds)
    return differences


def _comparable(first: str, second: str) -> bool:
    """Return whether two methods share their name or their strategy."""
    (name, _, strategy), (other, _, others) = first.rpartition("_"), second.rpartition("_")
    return name == other or strategy == others
