"""What a verdict rests on, in the units of the metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.models.detection.verdict import Finding
from forewarn.pipelines.detection.task_metrics import Pull

__all__ = ["evidence_of"]

_PEERS = 3


def evidence_of(
    pull: Pull, finding: Finding, xids: list[dict[str, Any]] | None = None
) -> dict[str, Any] | None:
    """Return what the machine and the others showed, before and while it stood out.

    Parameters
    ----------
    pull : Pull
    finding : Finding
    xids : list of dict, optional
        Of the machine.

    Returns
    -------
    dict or None
        Medians: `now` and `before` of the machine, `others_now` and `others_before` of the rest of
        its group, and `peers`, the machines nearest to the middle of the group, to look at beside
        it; `unit`, for a counter what its increase is per, null for a gauge; `xids`, null where
        nobody knows. None where several metrics were looked at together.
    """
    series = pull.series(finding.metric)
    if series is None:
        return None
    rest = np.flatnonzero(pull.groups == pull.groups[finding.machine])
    rest = rest[rest != finding.machine]
    now, before = series[:, finding.since : finding.at + 1], series[:, : finding.since]
    levels = np.array([_median(now[i]) for i in rest])
    middle = _median(levels)
    near = rest[np.argsort(np.where(np.isnan(levels), np.inf, np.abs(levels - middle)))]
    return {
        "now": _number(_median(now[finding.machine])),
        "before": _number(_median(before[finding.machine])),
        "others_now": _number(middle),
        "others_before": _number(_median(before[rest])),
        "peers": [pull.grid.machines[i] for i in near[:_PEERS]],
        "unit": pull.unit(finding.metric),
        "xids": xids,
    }


def _median(values: npt.NDArray[np.floating[Any]]) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.6g}")
