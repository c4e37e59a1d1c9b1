"""What a watch has learned since the fit: thresholds go up with what healthy tasks reach."""

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
)  # times what a task reached in its first hour, and any task on any day
_MAX_RAISE = 3.0  # times the threshold of the fit: who needs more needs another fit


@dataclass(slots=True)
class ThresholdAdaptation:
    """How far healthy tasks came, as shares of the thresholds of the fit, and what was watched.

    Thresholds are only raised. To lower them takes a refit on days that include those with alarms:
    what was called faulty and left out would lower them again and again.

    Attributes
    ----------
    begun : dict of str to int
        First moment of each task, nanoseconds.
    until : dict of str to int
        Up to which moment it has been watched.
    own : dict of str to dict of str to float
        By task and metric, from its first hour.
    site : dict of str to float
        By metric, from all tasks.
    days : float
        Task-days that were watched.
    alarms : int
        Verdicts that were given.
    """

    begun: dict[str, int] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    own: dict[str, dict[str, float]] = field(default_factory=dict)
    site: dict[str, float] = field(default_factory=dict)
    days: float = 0.0
    alarms: int = 0

    def watched(self, task: str, begin: int, end: int) -> None:
        """Take note of the time in which a task was looked at."""
        self.begun.setdefault(task, begin)
        since = max(self.until.get(task, begin), begin)
        self.days += max(end - since, 0) / DAY
        self.until[task] = max(end, self.until.get(task, end))

    def learn(self, task: str, shares: Mapping[str, float]) -> None:
        """Take note of how far a task came in which nobody was named."""
        early = self.until[task] - self.begun[task] <= FIRST_HOUR
        own = self.own.setdefault(task, {})
        for metric, share in shares.items():
            self.site[metric] = max(share, self.site.get(metric, 0.0))
            if early:
                own[metric] = max(share, own.get(metric, 0.0))

    def raised(self, detector: Detector, task: str) -> Detector:
        """Return a detector with the thresholds that suit a task of this site."""
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


def threshold_shares(detector: Detector, pasts: Mapping[str, MachineBaseline]) -> dict[str, float]:
    """Return how far a call came on each metric, as a share of the threshold."""
    shares = {}
    for model in detector.metrics:
        past = pasts.get(model.name)
        if past is None or past.judged is None or model.threshold is None:
            continue
        scores = past.judged.scores
        if scores.size:
            reached = continuity_levels(
                scores, detector.rules.continuity, detector.rules.share
            ).max(axis=1)
            highest = (reached / model.threshold.of(past.machines)).max()
            if np.isfinite(highest):
                shares[model.name] = float(highest)
    return shares
