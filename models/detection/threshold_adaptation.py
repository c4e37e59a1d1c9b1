"""Threshold adaptation: a running watch raises thresholds that healthy tasks come close to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from forewarn.features.time_units import DAY, HOUR
from forewarn.models.detection.continuity import continuity_levels
from forewarn.models.detection.detector import Detector
from forewarn.models.detection.machine_baseline import MachineBaseline

__all__ = ["FIRST_HOUR", "ThresholdAdaptation", "threshold_shares"]

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

    def learn(self, task: str, shares: Mapping[str, float]) -> None:
        """Record the scores of a task in which no machine was identified."""
        early = self.until[task] - self.begun[task] <= FIRST_HOUR
        own = self.own.setdefault(task, {})
        for metric, share in shares.items():
            self.site[metric] = max(share, self.site.get(metric, 0.0))
            if early:
                own[metric] = max(share, own.get(metric, 0.0))

    def raised(self, detector: Detector, task: str) -> Detector:
        """Return a detector whose thresholds are raised for a task of this site."""
        own, models = self.own.get(task, {}), []
        for model in detector.metrics:
            by = max(
                _OWN_MARGIN * own.get(model.name, 0.0),
                _SITE_MARGIN * self.site.get(model.name, 0.0),
            )
            threshold = model.threshold
            if threshold is not None and by > 1.0:
                margin = threshold.margin + float(np.log(min(by, _MAX_RAISE)))
                model = replace(model, threshold=replace(threshold, margin=margin))
            models.append(model)
        return replace(detector, metrics=tuple(models))


def threshold_shares(
    detector: Detector, baselines: Mapping[str, MachineBaseline]
) -> dict[str, float]:
    """Return the highest score of a call on each metric, divided by the threshold."""
    shares = {}
    for model in detector.metrics:
        baseline = baselines.get(model.name)
        if baseline is None or baseline.scored is None or model.threshold is None:
            continue
        scores = baseline.scored.scores
        if scores.size:
            reached = continuity_levels(
                scores, detector.rules.continuity, detector.rules.continuity_share
            ).max(axis=1)
            highest = (reached / model.threshold.for_machines(baseline.machines)).max()
            if np.isfinite(highest):
                shares[model.name] = float(highest)
    return shares
