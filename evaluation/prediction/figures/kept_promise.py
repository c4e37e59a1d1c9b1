"""Whether the precision that the list promises is kept, and when a broken promise is forgiven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.figures.risk_tests import (
    running_bounds,
    shortfall_evidence,
    surplus_evidence,
)

__all__ = [
    "ENOUGH_JUDGED",
    "JudgedAlerts",
    "Promise",
    "PromiseChange",
    "PromiseState",
    "judge_promise",
]

Floats = npt.NDArray[np.float64]

ENOUGH_JUDGED = 60
"""So many judged alerts tell a precision of 20 % from one of 10 % (`response/score/score.py`)."""
_LEVEL = 0.05
_TOLERANCE = 0.8  # a precision of less than so much of the promise breaks it
_FORGIVEN = 0.5  # so much of the promise must be certain before flags come back
# How much of a list may come back, and its share of the level: most often all of it does.
_LENGTHS = {1 / 3: 0.25, 2 / 3: 0.25, 1.0: 0.5}


class PromiseState(StrEnum):
    """What can be said of the promise."""

    UNKNOWN = "cannot tell"
    HOLDS = "kept"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class JudgedAlerts:
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

    promised: Floats
    hit: npt.NDArray[np.bool_]
    position: Floats
    weight: Floats

    @classmethod
    def of(
        cls,
        promised: Sequence[float] | Floats,
        hit: Sequence[bool] | npt.NDArray[np.bool_],
        position: Sequence[float] | Floats | None = None,
        weight: Sequence[float] | Floats | None = None,
    ) -> JudgedAlerts:
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

    def __getitem__(self, part: slice | npt.NDArray[np.int64]) -> JudgedAlerts:
        return JudgedAlerts(
            self.promised[part], self.hit[part], self.position[part], self.weight[part]
        )


@dataclass(frozen=True, slots=True)
class PromiseChange:
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
    def by(cls, alerts: JudgedAlerts, judged: int, length: float) -> PromiseChange:
        """Make a change that some alerts, the last of `judged`, decide."""
        return cls(judged, length, len(alerts), int(alerts.hit.sum()), float(alerts.promised.sum()))


@dataclass(frozen=True, slots=True)
class Promise:
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

    state: PromiseState
    judged: int
    hits: int
    promised: float | None
    precision: float | None
    bounds: tuple[float, float]
    length: float
    changes: tuple[PromiseChange, ...]

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


def judge_promise(alerts: JudgedAlerts, *, length: float = 1.0) -> Promise:
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
    start, rest, changes = 0, alerts, list[PromiseChange]()
    while (change := _break(rest) if length else _forgiveness(rest)) is not None:
        start, length = start + change.judged, change.length
        changes.append(replace(change, judged=start))
        rest = alerts[start:]
    enough = len(rest) >= ENOUGH_JUDGED or bool(changes)
    state = PromiseState.HOLDS if enough else PromiseState.UNKNOWN
    return _promise(rest, state if length else PromiseState.BROKEN, length, changes)


def _tolerated(alerts: JudgedAlerts) -> Floats:
    """Return the chances below which the promise is broken."""
    return _TOLERANCE * alerts.promised


def _break(alerts: JudgedAlerts) -> PromiseChange | None:
    """Return the break of the promise, decided by the stretch that is the strongest evidence."""
    evidence = shortfall_evidence(_tolerated(alerts), alerts.hit, alerts.weight)
    strong = np.flatnonzero(evidence.total >= 1.0 / _LEVEL)
    strong = strong[strong >= ENOUGH_JUDGED - 1]
    if not len(strong):
        return None
    last = int(strong[0])
    return PromiseChange.by(alerts[evidence.begin[last] : last + 1], last + 1, 0.0)


def _forgiveness(alerts: JudgedAlerts) -> PromiseChange | None:
    """Return the first return of flags; of two at once that of the longer list."""
    ways = [_earned_back(alerts, length) for length in _LENGTHS]
    known = [way for way in ways if way is not None]
    return min(known, key=lambda way: (way.judged, -way.length), default=None)


def _earned_back(alerts: JudgedAlerts, length: float) -> PromiseChange | None:
    """Return when so much of the list has earned its flags back."""
    numbers = np.flatnonzero(alerts.position <= length + 1e-9)
    part = alerts[numbers]
    evidence = surplus_evidence(_FORGIVEN * part.promised, part.hit, part.weight)
    above = np.append(0.0, (part.weight * (part.hit - _tolerated(part))).cumsum())
    earned = (evidence.total >= 1.0 / (_LEVEL * _LENGTHS[length])) & (numbers >= ENOUGH_JUDGED - 1)
    earned &= above[1:] >= above[evidence.begin]
    if not earned.any():
        return None
    last = int(earned.argmax())
    decided_by = part[evidence.begin[last] : last + 1]
    return PromiseChange.by(decided_by, int(numbers[last]) + 1, length)


def _promise(
    alerts: JudgedAlerts,
    state: PromiseState,
    length: float,
    changes: Sequence[PromiseChange],
) -> Promise:
    weight = alerts.weight
    total = float(weight.sum())
    return Promise(
        state=state,
        judged=len(alerts),
        hits=int(alerts.hit.sum()),
        promised=float((weight * alerts.promised).sum() / total) if total else None,
        precision=float((weight * alerts.hit).sum() / total) if total else None,
        bounds=running_bounds(alerts.hit.astype(np.float64), _LEVEL, weight),
        length=length,
        changes=tuple(changes),
    )
