"""The fit report of a detector: cross-validated alarms, and what the data can support."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from forewarn.models.detection.fitting.detector_training import CrossValidation
from forewarn.models.detection.fitting.threshold_fitting import Suspect

__all__ = ["FitAssessment", "exceeds_rate", "supported_rate"]

_SIGNIFICANCE = 0.05
_DETECTABLE_ALARM_SHARE = (
    0.1  # share of healthy tasks with alarms that a fit has to be able to notice
)


def supported_rate(alarms: int, days: float) -> float | None:
    """Return the upper 95 % bound of the alarm rate per day; None without any day.

    Examples
    --------
    >>> round(supported_rate(0, 1.0), 2)
    3.0
    """
    return _rate_bound(alarms) / days if days > 0 else None


def _rate_bound(alarms: int) -> float:
    """Return the largest Poisson mean under which so few alarms are still plausible (5 %)."""
    from scipy.special import gammaincinv  # a detector that only runs has no SciPy

    return float(gammaincinv(alarms + 1.0, 1.0 - _SIGNIFICANCE))


def exceeds_rate(alarms: int, days: float, rate: float) -> bool:
    """Tell whether there are more alarms than the requested rate explains (Poisson, 5 %).

    Examples
    --------
    >>> exceeds_rate(1, 1.0, 0.02), exceeds_rate(1, 10.0, 0.02)
    (True, False)
    """
    chance = fewer = math.exp(-rate * days)  # of no alarm, and of fewer alarms than observed
    for count in range(1, alarms):
        chance *= rate * days / count
        fewer += chance
    return alarms > 0 and 1.0 - fewer < _SIGNIFICANCE


@dataclass(frozen=True, slots=True)
class FitAssessment:
    """The result of a fit, cross-validated by job.

    Attributes
    ----------
    tasks, machines : int
        All tasks, and the machines of all tasks together.
    jobs : int
    left_out : tuple of Suspect
        Tasks excluded as suspected faulty by a detector fitted without their job.
    judged : CrossValidation
    never_useful : tuple of str
        Metrics on which no task could be judged.
    metrics : int
    false_alarms : float
        Requested rate, per task and day.
    """

    tasks: int
    machines: int
    jobs: int
    left_out: tuple[Suspect, ...]
    judged: CrossValidation
    never_useful: tuple[str, ...]
    metrics: int
    false_alarms: float

    @property
    def identifies_no_machine(self) -> bool:
        """No task could be judged on any metric."""
        return len(self.never_useful) == self.metrics or self.judged.blind >= 1.0

    @property
    def expected_alarms(self) -> float:
        """Alarms in the held-out jobs that the requested rate explains."""
        return float(f"{self.judged.days * self.false_alarms:.3g}")

    @property
    def has_excess_alarms(self) -> bool:
        """The held-out jobs have more alarms than the requested rate explains."""
        return exceeds_rate(len(self.judged.alarms), self.judged.days, self.false_alarms)

    @property
    def passed(self) -> bool:
        """The detector can identify machines and does not raise too many alarms."""
        return not (self.identifies_no_machine or self.has_excess_alarms)

    @property
    def doubts(self) -> list[str]:
        """Return the reasons not to act on its verdicts yet; empty if there are none."""
        reasons = []
        if self.identifies_no_machine:
            reasons.append("it cannot identify any machine: no task could be judged")
        if self.has_excess_alarms:
            n, days = len(self.judged.alarms), self.judged.days
            reasons.append(
                f"{n} alarms in {days:.2g} task-days of held-out jobs, "
                f"requested {self.false_alarms:g} a day"
            )
        least = int(np.ceil(np.log(_SIGNIFICANCE) / np.log(1.0 - _DETECTABLE_ALARM_SHARE)))
        if self.judged.judged < least:
            reasons.append(
                f"{self.judged.judged} tasks could be judged by a detector fitted without their "
                f"job; at least {least} are needed"
            )
        if self.left_out:
            reasons.append(
                f"{len(self.left_out)} tasks look faulty and were excluded; including them would "
                "double a threshold: label them with --incidents"
            )
        return reasons

    @property
    def supported(self) -> float | None:
        """False alarms per task and day that the data support; None if no task was judged."""
        rate = supported_rate(len(self.judged.alarms), self.judged.days)
        return None if rate is None else float(f"{rate:.3g}")

    @property
    def days_needed(self) -> float:
        """Healthy task-days needed to support the requested rate."""
        return float(f"{_rate_bound(0) / self.false_alarms:.3g}")

    def figures(self) -> dict[str, Any]:
        """Return the report as `detect fit --json` prints it (docs/formats.md, section 6)."""
        return {
            "tasks": self.tasks,
            "machines": self.machines,
            "jobs": self.jobs,
            "judged": self.judged.judged,
            "task_days": round(self.judged.days, 4),
            "alarms": len(self.judged.alarms),
            "alarms_expected": self.expected_alarms,
            "alarmed": [_suspect_as_json(suspect) for suspect in self.judged.alarms],
            "left_out": [_suspect_as_json(suspect) for suspect in self.left_out],
            "blind": round(self.judged.blind, 4),
            "never_useful": list(self.never_useful),
            "false_alarms_wanted": self.false_alarms,
            "false_alarms_supported": self.supported,
            "task_days_needed": self.days_needed,
            "passed": self.passed,
            "observe_only": bool(self.doubts),
            "doubts": self.doubts,
        }


def _suspect_as_json(suspect: Suspect) -> Mapping[str, Any]:
    return {
        "task": suspect.task,
        "machine": suspect.machine,
        "metric": suspect.metric,
        "score": round(suspect.score, 3),
        "why": suspect.why,
    }
