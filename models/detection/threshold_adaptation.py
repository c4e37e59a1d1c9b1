"""Threshold adaptation: a running watch raises thresholds that healthy tasks come close to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from forewarn.features.time_units import DAY, HOUR
from forewarn.models.detection.detector import Detector

__all__ = ["FIRST_HOUR", "ThresholdAdaptation"]

FIRST_HOUR = HOUR  # nanoseconds
_OWN_MARGIN, _SITE_MARGIN = (
    1.5,
    1.1,
)  # factors on the scores of a task's first hour and of any task
_MAX_RAISE = 3.0  # largest factor on a fitted threshold; beyond it, fit again


@dataclass(slots=True)
class ThresholdAdaptation:
    """Largest scores of healthy tasks, relative to the fitted thresholds, and the time watched.

    Thresholds are only ever raised. Lowering them requires a new fit on days that include the
    alarms: without those days, each new fit would lower them further.

    Attributes
    ----------
    begun : dict of str to int
        First moment of each task, nanoseconds.
    until : dict of str to int
        Last moment of each task that was watched, nanoseconds.
    own : dict of str to dict of str to float
        By task and metric, from the task's first hour.
    site : dict of str to float
        By metric, over all tasks.
    days : float
        Task-days watched.
    alarms : int
        Verdicts that identified a machine.
    """

    begun: dict[str, int] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    own: dict[str, dict[str, float]] = field(default_factory=dict)
    site: dict[str, float] = field(default_factory=dict)
    days: float = 0.0
    alarms: int = 0

    def watched(self, task: str, begin: int, end: int) -> None:
        """Record the span in which a task was watched."""
        self.begun.setdefault(task, begin)
        since = max(self.until.get(task, begin), begin)
        self.days += max(end - since, 0) / DAY
        self.until[task] = max(end, self.until.get(task, end))

    def learn(self, task: str, nearest: Mapping[str, float]) -> None:
        """Record the scores of a task in which no machine was identified.

        Parameters
        ----------
        task : str
        nearest : mapping of str to float
            By metric, as shares of the thresholds of the detector that `raised` returned.
        """
        early = self.until[task] - self.begun[task] <= FIRST_HOUR
        own = self.own.setdefault(task, {})
        factors = {metric: self._factor(task, metric) for metric in nearest}
        for metric, factor in factors.items():
            share = nearest[metric] * factor
            self.site[metric] = max(share, self.site.get(metric, 0.0))
            if early:
                own[metric] = max(share, own.get(metric, 0.0))

    def raised(self, detector: Detector, task: str) -> Detector:
        """Return a detector whose thresholds are raised for a task of this site."""
        models = []
        for model in detector.metrics:
            factor = self._factor(task, model.name)
            threshold = model.threshold
            if threshold is not None and factor > 1.0:
                margin = threshold.margin + float(np.log(factor))
                model = replace(model, threshold=replace(threshold, margin=margin))
            models.append(model)
        return replace(detector, metrics=tuple(models))

    def _factor(self, task: str, metric: str) -> float:
        """Return by how much the fitted threshold is raised."""
        own = _OWN_MARGIN * self.own.get(task, {}).get(metric, 0.0)
        site = _SITE_MARGIN * self.site.get(metric, 0.0)
        return min(max(own, site, 1.0), _MAX_RAISE)
