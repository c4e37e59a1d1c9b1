"""Whether the precision that the list promises is kept, and when a broken promise is forgiven."""

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
"""So many judged alerts tell a precision of 20 % from one of 10 % (`response/score/response_score.py`)."""
_SIGNIFICANCE_LEVEL = 0.05
_MIN_CALIBRATION_RATIO = 0.8  # a precision of less than so much of the promise breaks it
_RECOVERY_RATIO = 0.5  # so much of the promise must be certain before flags come back
# How much of a list may come back, and its share of the level: most often all of it does.
_LEVEL_SHARE_BY_LENGTH = {1 / 3: 0.25, 2 / 3: 0.25, 1.0: 0.5}


class CalibrationState(StrEnum):
    """What can be said of the promise."""

    UNKNOWN = "cannot tell"
    HOLDS = "kept"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class LabelledAlerts:
    """Alerts whose GPU stayed in service and whose outcome is known, by the time of judgement.

    Attributes
    ----------
    promised : ndarray of shape (n,)
        Chance of a failure that was promised.
    hit : ndarray of shape (n,), bool
        The GPU failed in time.
    position : ndarray of shape (n,)
        Where it stood on its list, in (0, 1].
    weight : ndarray of shape (n,)
        In (0, 1]: what an alert stands for. Where GPUs are left alone by chance, the smallest
        such chance divided by that of the alert.
    """

    promised: Float64Array
    hit: BoolArray
    position: Float64Array
    weight: Float64Array

    @classmethod
    def from_sequences(
        cls,
        promised: Sequence[float] | Float64Array,
        hit: Sequence[bool] | BoolArray,
        position: Sequence[float] | Float64Array | None = None,
        weight: Sequence[float] | Float64Array | None = None,
    ) -> LabelledAlerts:
        """Make them of plain sequences; without positions all are at the end of their list."""
        n = len(hit)
        return cls(
            np.asarray(promised, dtype=np.float64),
            np.asarray(hit, dtype=bool),
            np.ones(n) if position is None else np.asarray(position, dtype=np.float64),
            np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.hit)

    def __getitem__(self, part: slice | Int64Array) -> LabelledAlerts:
        return LabelledAlerts(
            self.promised[part], self.hit[part], self.position[part], self.weight[part]
        )


@dataclass(frozen=True, slots=True)
class CalibrationChange:
    """A break, or a return of flags.

    Attributes
    ----------
    judged : int
        Alerts judged by then, in all.
    length : float
        How much of the list may call for action from then on: 0 is a break.
    alerts, hits : int
        What it was decided by: the last alerts up to that length of the list, of a break all,
        and how many of their GPUs failed.
    expected : float
        How many of them were to fail.
    """

    judged: int
    length: float
    alerts: int
    hits: int
    expected: float

    @classmethod
    def decided_by(cls, alerts: LabelledAlerts, judged: int, length: float) -> CalibrationChange:
        """Make a change that some alerts, the last of `judged`, decide."""
        return cls(judged, length, len(alerts), int(alerts.hit.sum()), float(alerts.promised.sum()))


@dataclass(frozen=True, slots=True)
class MonitoredCalibration:
    """What became of the promise.

    Attributes
    ----------
    state : PromiseState
    judged : int
        Alerts since the state began.
    hits : int
    promised, precision : float or None
        Means over them, weighted; None without any.
    bounds : tuple of float
        Of the precision, at any time.
    length : float
        How much of the list may call for action: 0 while the promise is broken.
    changes : tuple of PromiseChange
        In order; of two that follow each other one is a break.
    """

    state: CalibrationState
    judged: int
    hits: int
    promised: float | None
    precision: float | None
    bounds: tuple[float, float]
    length: float
    changes: tuple[CalibrationChange, ...]

    @property
    def broken_at(self) -> tuple[int, ...]:
        """Numbers of the alerts with which it broke."""
        return tuple(change.judged - 1 for change in self.changes if not change.length)

    def length_after(self, n: int) -> float:
        """Return how much of the list may call for action once `n` alerts are judged."""
        return next((c.length for c in reversed(self.changes) if c.judged <= n), 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "state": str(self.state),
            "judged": self.judged,
            "hits": self.hits,
            "promised": self.promised,
            "precision": self.precision,
            "bounds": list(self.bounds),
            "broken": len(self.broken_at),
            "changes": [asdict(change) for change in self.changes],
        }


def monitor_calibration(alerts: LabelledAlerts, *, length: float = 1.0) -> MonitoredCalibration:
    """Follow the alerts in their order, and say what became of the promise.

    It breaks when the evidence is strong that the precision is below 0.8 of what was promised
    (`shortfall_evidence`, level 5 %), and not with fewer than 60 judged alerts. After that, what
    the list would have flagged is judged on. The promise is forgiven, after 60 alerts at the
    earliest, when the evidence is strong that the precision of some length of the list is above
    half of what is promised (`surplus_evidence`; Learn-then-Test, arXiv 2110.01052, with the same
    level shared among the lengths), and the alerts that show it reach 0.8 of it. Then the list is
    no longer than that, and the watch begins anew.

    Parameters
    ----------
    alerts : JudgedAlerts
    length : float
        How much of the list may call for action before the first of them: 0 if it is broken.
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
    """Return the chances below which the promise is broken."""
    return _MIN_CALIBRATION_RATIO * alerts.promised


def _find_miscalibration(alerts: LabelledAlerts) -> CalibrationChange | None:
    """Return the break of the promise, decided by the stretch that is the strongest evidence."""
    evidence = shortfall_evidence(_lowest_calibrated(alerts), alerts.hit, alerts.weight)
    strong = np.flatnonzero(evidence.total >= 1.0 / _SIGNIFICANCE_LEVEL)
    strong = strong[strong >= MIN_LABELLED_ALERTS - 1]
    if not len(strong):
        return None
    last = int(strong[0])
    return CalibrationChange.decided_by(alerts[evidence.begin[last] : last + 1], last + 1, 0.0)


def _find_recovery(alerts: LabelledAlerts) -> CalibrationChange | None:
    """Return the first return of flags; of two at once that of the longer list."""
    ways = [_recovery_at_length(alerts, length) for length in _LEVEL_SHARE_BY_LENGTH]
    known = [way for way in ways if way is not None]
    return min(known, key=lambda way: (way.judged, -way.length), default=None)


def _recovery_at_length(alerts: LabelledAlerts, length: float) -> CalibrationChange | None:
    """Return when so much of the list has earned its flags back."""
    numbers = np.flatnonzero(alerts.position <= length + 1e-9)
    part = alerts[numbers]
    evidence = surplus_evidence(_RECOVERY_RATIO * part.promised, part.hit, part.weight)
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
        promised=float((weight * alerts.promised).sum() / total) if total else None,
        precision=float((weight * alerts.hit).sum() / total) if total else None,
        bounds=confidence_sequence(alerts.hit.astype(np.float64), _SIGNIFICANCE_LEVEL, weight),
        length=length,
        changes=tuple(changes),
    )
