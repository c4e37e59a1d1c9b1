"""A detector of three lines as the floor of a comparison: means over the pull, within groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from forewarn.features.array_types import Float64Array
from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detection_verdict import MachineFinding, Verdict
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.monitored_task import Task

__all__ = ["PullMeans"]

_MARGIN = 2.0  # times the largest difference in the training pulls
_MIN_THRESHOLD = 0.01  # of the range


@dataclass(frozen=True, slots=True)
class PullMeans:
    """Names the machine whose mean differs most from the median of its group.

    Attributes
    ----------
    rules : DetectionRules
    limits : tuple of MetricLimits
    thresholds : ndarray of shape (n_metrics,)
    """

    rules: DetectionRules
    limits: tuple[MetricLimits, ...]
    thresholds: Float64Array

    @classmethod
    def fit(
        cls, rules: DetectionRules, limits: tuple[MetricLimits, ...], tasks: Iterable[Task]
    ) -> Self:
        """Set each threshold to twice the largest difference in the training tasks."""
        highest = np.array([_differences(task, limits).max(axis=1) for task in tasks])
        return cls(rules, limits, np.maximum(_MARGIN * highest.max(axis=0), _MIN_THRESHOLD))

    def strongest(self, task: Task) -> tuple[tuple[str, float], ...]:
        """Return the machine with the largest ratio to the threshold, by metric."""
        ratios = _differences(task, self.limits) / self.thresholds[:, None]
        return tuple((task.machines[int(row.argmax())], float(row.max())) for row in ratios)

    def find(
        self,
        task: Task,
        baselines: Mapping[str, MachineBaseline] | None = None,
        *,
        incremental: bool = False,  # noqa: ARG002 (as for a `Detector`)
    ) -> tuple[Verdict, dict[str, MachineBaseline]]:
        """Return the verdict on a task; nothing is kept for later calls."""
        ratios = _differences(task, self.limits) / self.thresholds[:, None]
        metric, machine = np.unravel_index(int(ratios.argmax()), ratios.shape)
        names = tuple(limits.name for limits in self.limits)
        score, end = float(ratios[metric, machine]), task.n_ticks - 1
        finding = MachineFinding(int(machine), names[metric], score, 0, end)
        return Verdict((finding,) if score >= 1.0 else (), (), names, ()), dict(baselines or {})


def _differences(task: Task, limits: tuple[MetricLimits, ...]) -> Float64Array:
    """Return how far each machine's mean is from the median of its group, by metric."""
    out = np.zeros((len(limits), len(task.machines)))
    for row, each in enumerate(limits):
        series = task.series(each.name)
        if series is None:
            continue
        scaled = each.scale(series)
        sent = np.isfinite(scaled).sum(axis=1)
        means = np.where(sent > 0, np.nansum(scaled, axis=1) / np.maximum(sent, 1), np.nan)
        for group in np.unique(task.groups):
            members = np.flatnonzero((task.groups == group) & (sent > 0))
            if len(members):
                out[row, members] = np.abs(means[members] - np.median(means[members]))
    return out
