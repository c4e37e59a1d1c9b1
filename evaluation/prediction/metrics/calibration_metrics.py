"""Calibration metrics: predicted probabilities against outcomes, at true prevalence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.features.array_types import Float64Array
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

    Slope and intercept are on the log-odds scale; None if they cannot be fitted. The slope tells
    whether high and low probabilities differ by the right amount, `ratio` whether their level is
    right: with a slope of 1, all of them may still be too low.

    Attributes
    ----------
    slope, intercept : float or None
    slope_interval : tuple of float or None
    bins : sequence of ProbabilityGroup
    ratio : float or None
        Observed positives for each expected one.
    ratio_interval : tuple of float or None
    """

    slope: float | None = None
    slope_interval: tuple[float, float] | None = None
    intercept: float | None = None
    bins: Sequence[ProbabilityGroup] = ()
    ratio: float | None = None
    ratio_interval: tuple[float, float] | None = None


def calibration_metrics(judged: Judged, draws: npt.NDArray[np.float64]) -> CalibrationMetrics:
    """Compare probabilities with outcomes.

    Parameters
    ----------
    judged : iterable of LabelledProbabilities
        Iterated several times.
    draws : ndarray of shape (n_draws, n_machines)
        Bootstrap draws of machines, for the intervals.
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
    observed, expected = _sums_by_machine(judged, draws.shape[1])
    metrics = CalibrationMetrics(
        slope=slope,
        intercept=intercept,
        bins=bins,
        ratio=float(observed.sum() / expected.sum()),
    )
    if (observed > 0).sum() < _MIN_FAILING_MACHINES:
        return metrics
    return replace(
        metrics,
        slope_interval=percentile_interval(slope_draws(judged, (slope, intercept), draws)),
        ratio_interval=percentile_interval((draws @ observed) / (draws @ expected)),
    )


def _sums_by_machine(judged: Judged, n_machines: int) -> tuple[Float64Array, Float64Array]:
    """Return the number of positives and the sum of probabilities of each machine."""
    observed, expected = np.zeros((2, n_machines))
    for probabilities, labels, machine in judged:
        observed += np.bincount(machine, labels == 1, minlength=n_machines)
        expected += np.bincount(machine, probabilities, minlength=n_machines)
    return observed, expected
