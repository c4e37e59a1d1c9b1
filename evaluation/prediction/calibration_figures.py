"""The figures of probabilities: how they compare with what happened, at true prevalence."""

from __future__ import annotations

from typing import Any

from forewarn.models.prediction.reliability import Judged, calibration_slope, reliability

__all__ = ["calibration_figures"]


def calibration_figures(judged: Judged) -> dict[str, Any]:
    """Return groups of like probabilities with what became of them, and slope and intercept.

    Parameters
    ----------
    judged : iterable of (probabilities, labels), each ndarray of shape (n,)
        Iterated several times.
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
        return {"slope": None, "intercept": None, "bins": bins}
    slope, intercept = calibration_slope(judged)
    return {"slope": slope, "intercept": intercept, "bins": bins}
