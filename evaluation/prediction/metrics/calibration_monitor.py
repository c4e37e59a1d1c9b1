"""Calibration monitor: detects that list precision falls short of the predicted probabilities.

The monitor also detects when a ranking has recovered, so that its GPUs may be flagged again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from forewarn.evaluation.prediction.metrics.sequential_tests import (
    confidence_sequence,
    shortfall_evidence,
    surplus_evidence,
)
from forewarn.features.array_types import BoolArray, Float64Array, Int64Array

__all__ = [
    "MIN_LABELLED_ALERTS",
    "CalibrationChange",
    "CalibrationState",
    "LabelledAlerts",
    "MonitoredCalibration",
    "monitor_calibration",
]


MIN_LABELLED_ALERTS = 60
"""With this many alerts a precision of 20 % is distinguishable from 10 %
(`response/score/score.py`).
"""
_SIGNIFICANCE_LEVEL = 0.05
_MIN_CALIBRATION_RATIO = (
    0.8  # lowest ratio of precision to predicted probability that counts as calibrated
)
_RECOVERY_RATIO = 0.5  # ratio that must be certain before flags return
# Share of a list that may be flagged again, and its part of the significance level. Recovery of the
# whole list is the most frequent case.
_LEVEL_SHARE_BY_LENGTH = {1 / 3: 0.25, 2 / 3: 0.25, 1.0: 0.5}


class CalibrationState(StrEnum):
    """State of the calibration. The values are stored in lists and reports."""

    UNKNOWN = "cannot tell"
    HOLDS = "kept"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class LabelledAlerts:
    """Alerts with known outcomes whose GPU stayed in service, in the order of their outcomes.

    Attributes
    ----------
    predicted : ndarray of shape (n,)
        Predicted failure probability.
    hit : ndarray of shape (n,), bool
        Whether the GPU failed within the horizon.
    position : ndarray of shape (n,)
        Relative rank on its list, in (0, 1].
    weight : ndarray of shape (n,)
        Weight in (0, 1]. If GPUs are left in service at random, it is the smallest such probability
        divided by that of the alert.
    """

    predicted: Float64Array
    hit: BoolArray
    position: Float64Array
    weight: Float64Array

    @classmethod
    def from_sequences(
        cls,
        predicted: Sequence[float] | Float64Array,
        hit: Sequence[bool] | BoolArray,
        position: Sequence[float] | Float64Array | None = None,
        weight: Sequence[float] | Float64Array | None = None,
    ) -> LabelledAlerts:
        """Convert sequences; without positions, all alerts are at the end of their list."""
        n = len(hit)
        return cls(
            np.asarray(predicted, dtype=np.float64),
            np.asarray(hit, dtype=bool),
            np.ones(n) if position is None else np.asarray(position, dtype=np.float64),
            np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.hit)

    def __getitem__(self, part: slice | Int64Array) -> LabelledAlerts:
        return LabelledAlerts(
            self.predicted[part], self.hit[part], self.position[part], self.weight[part]
        )


@dataclass(frozen=True, slots=True)
class CalibrationChange:
    """A detected miscalibration, or a recovery.

    Attributes
    ----------
    judged : int
        Number of alerts with known outcomes by then.
    length : float
        Share of the list that may be flagged from then on; 0 is a miscalibration.
    alerts, hits : int
        Evidence for the decision: the number of alerts in the block that decided it, and how many
        of their GPUs failed. For a recovery, only alerts within that share of the list count.
    expected : float
        Expected failures among them.
    """

    judged: int
    length: float
    alerts: int
    hits: int
    expected: float

    @classmethod
    def decided_by(cls, alerts: LabelledAlerts, judged: int, length: float) -> CalibrationChange:
        """Return a change that is decided by some alerts, the last of the first `judged`."""
        return cls(
            judged, length, len(alerts), int(alerts.hit.sum()), float(alerts.predicted.sum())
        )


@dataclass(frozen=True, slots=True)
class MonitoredCalibration:
    """Result of the calibration monitor.

    Attributes
    ----------
    state : CalibrationState
    judged : int
        Alerts since the state began.
    hits : int
    predicted, precision : float or None
        Weighted means over these alerts; None without any.
    bounds : tuple of float
        Confidence sequence of the precision.
    length : float
        Share of the list that may be flagged; 0 while miscalibrated.
    changes : tuple of CalibrationChange
        In order. At least one of two consecutive changes is a miscalibration.
    """

    state: CalibrationState
    judged: int
    hits: int
    predicted: float | None
    precision: float | None
    bounds: tuple[float, float]
    length: float
    changes: tuple[CalibrationChange, ...]

    @property
    def broken_at(self) -> tuple[int, ...]:
        """Numbers of the alerts at which miscalibration was detected."""
        return tuple(change.judged - 1 for change in self.changes if not change.length)

    def length_after(self, n: int) -> float:
        """Return the share of the list that may be flagged once `n` outcomes are known."""
        return next((c.length for c in reversed(self.changes) if c.judged <= n), 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "state": str(self.state),
            "judged": self.judged,
            "hits": self.hits,
            "promised": self.predicted,
            "precision": self.precision,
            "bounds": list(self.bounds),
            "broken": len(self.broken_at),
            "changes": [asdict(change) for change in self.changes],
        }


def monitor_calibration(alerts: LabelledAlerts, *, length: float = 1.0) -> MonitoredCalibration:
    """Monitor the calibration of alerts in their order.

    Miscalibration is detected by strong evidence (`shortfall_evidence`, level 5 %) that the
    precision is below 0.8 of the predicted probability, with at least 60 known outcomes. The alerts
    that the list would have raised are monitored afterwards.

    Flags return, after at least 60 further outcomes, when two conditions hold for some share of the
    list. There is strong evidence that its precision is above half of the predicted probability
    (`surplus_evidence`; Learn then Test, arXiv 2110.01052, with one level divided among the
    shares), and the alerts of that evidence reach 0.8 of the predicted probability. The list is
    then limited to that share, and monitoring starts again.

    Parameters
    ----------
    alerts : LabelledAlerts
    length : float
        Share of the list that may be flagged before the first alert; 0 if miscalibrated.
    """
    start, rest, changes = 0, alerts, list[CalibrationChange]()
    while (change := _find_miscalibration(rest) if length else _find_recovery(rest)) is not None:
        start, length = start + change.judged, change.length
        changes.append(replace(change, judged=start))
        rest = alerts[start:]
    enough = len(rest) >= MIN_LABELLED_ALERTS or bool(changes)
    state = CalibrationState.HOLDS if enough else CalibrationState.UNKNOWN
    return _summarize(rest, state if length else CalibrationState.BROKEN, length, changes)


def _lowest_calibrated(alerts: LabelledAlerts) -> Float64Array:
    """Return the lowest failure probabilities that count as calibrated."""
    return _MIN_CALIBRATION_RATIO * alerts.predicted


def _find_miscalibration(alerts: LabelledAlerts) -> CalibrationChange | None:
    """Return the first detected miscalibration, with the block of strongest evidence."""
    evidence = shortfall_evidence(_lowest_calibrated(alerts), alerts.hit, alerts.weight)
    strong = np.flatnonzero(evidence.total >= 1.0 / _SIGNIFICANCE_LEVEL)
    strong = strong[strong >= MIN_LABELLED_ALERTS - 1]
    if not len(strong):
        return None
    last = int(strong[0])
    return CalibrationChange.decided_by(alerts[evidence.begin[last] : last + 1], last + 1, 0.0)


def _find_recovery(alerts: LabelledAlerts) -> CalibrationChange | None:
    """Return the first recovery; of simultaneous ones, that of the largest share."""
    ways = [_recovery_at_length(alerts, length) for length in _LEVEL_SHARE_BY_LENGTH]
    known = [way for way in ways if way is not None]
    return min(known, key=lambda way: (way.judged, -way.length), default=None)


def _recovery_at_length(alerts: LabelledAlerts, length: float) -> CalibrationChange | None:
    """Return the recovery of a share of the list, if there is one."""
    numbers = np.flatnonzero(alerts.position <= length + 1e-9)
    part = alerts[numbers]
    evidence = surplus_evidence(_RECOVERY_RATIO * part.predicted, part.hit, part.weight)
    above = np.append(0.0, (part.weight * (part.hit - _lowest_calibrated(part))).cumsum())
    earned = (evidence.total >= 1.0 / (_SIGNIFICANCE_LEVEL * _LEVEL_SHARE_BY_LENGTH[length])) & (
        numbers >= MIN_LABELLED_ALERTS - 1
    )
    earned &= above[1:] >= above[evidence.begin]
    if not earned.any():
        return None
    last = int(earned.argmax())
    decided_by = part[evidence.begin[last] : last + 1]
    return CalibrationChange.decided_by(decided_by, int(numbers[last]) + 1, length)


def _summarize(
    alerts: LabelledAlerts,
    state: CalibrationState,
    length: float,
    changes: Sequence[CalibrationChange],
) -> MonitoredCalibration:
    weight = alerts.weight
    total = float(weight.sum())
    return MonitoredCalibration(
        state=state,
        judged=len(alerts),
        hits=int(alerts.hit.sum()),
        predicted=float((weight * alerts.predicted).sum() / total) if total else None,
        precision=float((weight * alerts.hit).sum() / total) if total else None,
        bounds=confidence_sequence(alerts.hit.astype(np.float64), _SIGNIFICANCE_LEVEL, weight),
        length=length,
        changes=tuple(changes),
    )
