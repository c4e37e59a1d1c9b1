"""The result for one task: a verdict, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.features.time_units import SECOND
from forewarn.models.detection.detection_verdict import Jitter, MachineFinding, Verdict
from forewarn.pipelines.detection.task_metrics import Pull
from forewarn.pipelines.runtime.timestamps import format_iso

__all__ = ["TaskVerdict", "UnjudgedTask"]

_FIELDS = ("machine", "metric", "score", "since")
_MAX_PEERS = 3


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """A pull and its verdict.

    Attributes
    ----------
    pull : Pull
    verdict : Verdict
    helped : bool
        The machine would not have been identified without the at-risk list.
    seconds : float
        Running time, including reading.
    xids : list of dict or None
        Recent Xids in the kernel log of the reported machine; None if unknown.
    """

    pull: Pull
    verdict: Verdict
    helped: bool
    seconds: float
    xids: list[dict[str, Any]] | None = None

    def line(self) -> dict[str, Any]:
        """Return the result as the command prints it (docs/formats.md, section 6)."""
        findings = self.verdict.findings
        first = findings[0] if findings else None
        named = _finding_as_json(self.pull, first) if first else dict.fromkeys(_FIELDS)
        contributions = first.metrics if first else ()
        event = [self.pull.grid.machines[i] for i in self.verdict.event] or None
        blind = {self.pull.grid.machines[i] for i in self.verdict.blind}
        return {
            "task": self.pull.name,
            **named,
            "detected_at": format_iso(self.pull.grid.time(first.at)) if first else None,
            "also": [_finding_as_json(self.pull, finding) for finding in findings[1:]],
            "blind": sorted(blind | set(self.pull.grid.off_clock)),
            "machines": len(self.pull.grid.machines),
            "seconds": round(self.seconds, 3),
            "metrics": [
                {"metric": name, "share": round(share, 3)} for name, share in contributions
            ],
            "kind": None if first is None else "straggler" if first.lasting else "fault",
            "evidence": None if first is None else _evidence(self.pull, first, self.xids),
            "suppressed": [
                {
                    "machine": self.pull.grid.machines[each.machine],
                    "metric": each.metric,
                    "score": round(each.score, 3),
                    "rule": each.rule,
                }
                for each in self.verdict.suppressed
            ],
            "event": event and {"machines": event},
            "jitters": [_jitter_as_json(self.pull, jitter) for jitter in self.verdict.jitters],
            "helped_by_list": self.helped,
            "examined": list(self.verdict.examined),
            "too_small": [self.pull.grid.machines[i] for i in self.verdict.too_small],
            "observe_only": self.verdict.observe_only,
            "not_judged": None,
        }


@dataclass(frozen=True, slots=True)
class UnjudgedTask:
    """A task that could not be judged.

    Attributes
    ----------
    task : str
    reason : str
    seconds : float
    observe_only : bool
        As set in the detector.
    """

    task: str
    reason: str
    seconds: float
    observe_only: bool = False

    def line(self) -> dict[str, Any]:
        """Return the same keys as for a task that was judged."""
        lists = ("also", "blind", "metrics", "suppressed", "jitters", "examined", "too_small")
        nothing: dict[str, Any] = {name: [] for name in lists}
        return {
            "task": self.task,
            **dict.fromkeys((*_FIELDS, "detected_at", "event", "kind", "evidence")),
            **nothing,
            "machines": 0,
            "seconds": round(self.seconds, 3),
            "helped_by_list": False,
            "observe_only": self.observe_only,
            "not_judged": self.reason,
        }


def _jitter_as_json(pull: Pull, jitter: Jitter) -> dict[str, Any]:
    seconds = (jitter.until - jitter.since + 1) * pull.grid.interval / SECOND
    return _finding_as_json(pull, jitter) | {"seconds": round(seconds, 3)}


def _finding_as_json(pull: Pull, finding: MachineFinding | Jitter) -> dict[str, Any]:
    return {
        "machine": pull.grid.machines[finding.machine],
        "metric": finding.metric,
        "score": round(finding.score, 3),
        "since": format_iso(pull.grid.time(finding.since)),
    }


def _evidence(
    pull: Pull, finding: MachineFinding, xids: list[dict[str, Any]] | None = None
) -> dict[str, Any] | None:
    """Return the values of the machine and its peers, before and during the deviation.

    Parameters
    ----------
    pull : Pull
    finding : MachineFinding
    xids : list of dict, optional
        Recent Xids of the machine.

    Returns
    -------
    dict or None
        Medians: `now` and `before` of the machine, `others_now` and `others_before` of its peers.
        `peers`: the machines closest to the median of the group, for comparison. `unit`: the unit
        of a counter's increase, null for a gauge. `xids`: null if unknown. For the joint score: of
        the metric that contributes most. None if several metrics were combined in a study.
    """
    metric = finding.metrics[0][0] if finding.metrics else finding.metric
    series = pull.series(metric)
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
        "peers": [pull.grid.machines[i] for i in near[:_MAX_PEERS]],
        "unit": pull.unit(metric),
        "xids": xids,
    }


def _median(values: npt.NDArray[np.floating[Any]]) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.6g}")
