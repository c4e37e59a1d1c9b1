"""The figures of probabilities: how they compare with what happened, at true prevalence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.models.prediction.reliability import (
    Judged,
    calibration_slope,
    reliability,
    slope_draws,
)

__all__ = ["CalibrationMetrics", "ProbabilityGroup", "calibration_metrics"]

_MIN_FAILING_MACHINES = 10  # machines: draws of fewer say nothing of others


@dataclass(frozen=True, slots=True)
class ProbabilityGroup:
    """Instances of like probabilities: the mean of these, and what became of them."""

    predicted: float
    observed: float
    count: int
    positives: int


@dataclass(frozen=True, slots=True)
class CalibrationMetrics:
    """Groups of like probabilities, the lowest first, and the line of a logistic regression.

    Its slope and intercept, on the log odds, are None where none can be fitted.
    """

    slope: float | None = None
    slope_interval: tuple[float, float] | None = None
    intercept: float | None = None
    bins: Sequence[ProbabilityGroup] = ()


def calibration_metrics(judged: Judged, draws: npt.NDArray[np.float64]) -> CalibrationMetrics:
    """Compare probabilities with what happened.

    Parameters
    ----------
    judged : iterable of JudgedRows
        Iterated several times.
    draws : ndarray of shape (n_draws, n_machines)
        Draws of machines, for the interval of the slope.
    """
    groups = reliability(judged)
    bins = [
        ProbabilityGroup(group.mean_probability, group.observed, group.count, group.positives)
        for group in groups
    ]
    n, positives = (
        sum(getattr(group, name) for group in groups) for name in ("count", "positives")
    )
    if not 0 < positives < n or groups[0].low == groups[-1].high:
        return CalibrationMetrics(bins=bins)
    slope, intercept = calibration_slope(judged)
    few = len(_count_failing_machines(judged)) < _MIN_FAILING_MACHINES
    bounds = None if few else percentile_interval(slope_draws(judged, (slope, intercept), draws))
    return CalibrationMetrics(slope, bounds, intercept, bins)


def _count_failing_machines(judged: Judged) -> set[int]:
    """Return the machines with an instance before a failure."""
    machines: set[int] = set()
    for _, labels, machine in judged:
        machines.update(np.unique(machine[labels == 1]).tolist())
    return machines
