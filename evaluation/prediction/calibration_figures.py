"""The figures of probabilities: how they compare with what happened, at true prevalence."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import interval
from forewarn.models.prediction.reliability import (
    Judged,
    calibration_slope,
    reliability,
    slope_draws,
)

__all__ = ["calibration_figures"]

_FEWEST_FAILING = 10  # machines: draws of fewer say nothing of others


def calibration_figures(judged: Judged, draws: npt.NDArray[np.float64]) -> dict[str, Any]:
    """Return groups of like probabilities with what became of them, and slope and intercept.

    Parameters
    ----------
    judged : iterable of JudgedRows
        Iterated several times.
    draws : ndarray of shape (n_draws, n_machines)
        Draws of machines, for the interval of the slope.
    """
    groups = reliability(judged)
    bins = [
        {
            "predicted": group.mean_probability,
            "observed": group.observed,
            "count": group.count,
            "positives": group.positives,
        }
        for group in groups
    ]
    n, positives = (
        sum(getattr(group, name) for group in groups) for name in ("count", "positives")
    )
    if not 0 < positives < n or groups[0].low == groups[-1].high:
        return {"slope": None, "slope_interval": None, "intercept": None, "bins": bins}
    slope, intercept = calibration_slope(judged)
    few = len(_failing_machines(judged)) < _FEWEST_FAILING
    bounds = None if few else interval(slope_draws(judged, (slope, intercept), draws))
    return {"slope": slope, "slope_interval": bounds, "intercept": intercept, "bins": bins}


def _failing_machines(judged: Judged) -> set[int]:
    """Return the machines with an instance before a failure."""
    machines: set[int] = set()
    for _, labels, machine in judged:
        machines.update(np.unique(machine[labels == 1]).tolist())
    return machines
