"""Calibration metrics: predicted probabilities against outcomes, at true prevalence."""

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

_MIN_FAILING_MACHINES = 10  # failing machines; with fewer a bootstrap is unreliable


@dataclass(frozen=True, slots=True)
class ProbabilityGroup:
    """Instances of similar probability: mean prediction and observed failures."""

    predicted: float
    observed: float
    count: int
    positives: int


@dataclass(frozen=True, slots=True)
class CalibrationMetrics:
    """Groups of similar probabilities, lowest first, and the fit of a logistic calibration.

    Slope and intercept are on the log-odds scale; None if they cannot be fitted.
    """

    slope: float | None = None
    slope_interval: tuple[float, float] | None = None
    intercept: float | None = None
    bins: Sequence[ProbabilityGroup] = ()


def calibration_metrics(judged: Judged, draws: npt.NDArray[np.float64]) -> CalibrationMetrics:
    """Compare probabilities with outcomes.

    Parameters
    ----------
    judged : iterable of LabelledProbabilities
        Iterated several times.
    draws : ndarray of shape (n_draws, n_machines)
        Bootstrap draws of machines, for the interval of the slope.
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
    """Return the machines with a positive instance."""
    machines: set[int] = set()
    for _, labels, machine in judged:
        machines.update(np.unique(machine[labels == 1]).tolist())
    return machines
