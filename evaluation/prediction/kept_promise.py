"""Whether the precision that the list promises is kept, and when a broken promise is forgiven."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.prediction.risk_tests import (
    longest_held,
    running_bounds,
    shortfall_evidence,
)

__all__ = ["ENOUGH_JUDGED", "JudgedAlerts", "Promise", "PromiseState", "judge_promise"]

Floats = npt.NDArray[np.float64]

ENOUGH_JUDGED = 60
"""So many judged alerts tell a precision of 20 % from one of 10 % (`response/score.py`)."""
_LEVEL = 0.05
_TOLERANCE = 0.8  # a precision of less than so much of the promise breaks it
_FORGIVEN = 0.5  # so much of the promise must be certain before flags come back
_LENGTHS = (1 / 3, 2 / 3, 1.0)


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

    def since(self, start: int) -> JudgedAlerts:
        """Return the alerts from a number on."""
        return JudgedAlerts(
            self.promised[start:], self.hit[start:], self.position[start:], self.weight[start:]
        )


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
    broken_at : tuple of int
        Numbers of the alerts with which it broke.
    """

    state: PromiseState
    judged: int
    hits: int
    promised: float | None
    precision: float | None
    bounds: tuple[float, float]
    length: float
    broken_at: tuple[int, ...]

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
        }


def judge_promise(alerts: JudgedAlerts) -> Promise:
    """Follow the alerts in their order, and say what became of the promise.

    It breaks when the evidence is strong that the precision is below 0.8 of what was promised
    (`shortfall_evidence`, level 5 %), and not with fewer than 60 judged alerts. After that, what
    the list would have flagged is judged on. The promise is forgiven when 60 alerts or a multiple
    of it reach 0.8 of what they promise, and the precision of some length of the list is above
    half of it for certain (`longest_held`; the level is shared among the attempts). Then the list
    is no longer than that, and the watch begins anew.
    """
    start, length, broken = 0, 1.0, list[int]()
    while (end := _breaks(alerts.since(start))) is not None:
        broken.append(start + end)
        start, length = start + end + 1, 0.0
        forgiven = _forgiven(alerts.since(start))
        if forgiven is None:
            break
        start, length = start + forgiven[0], forgiven[1]
    watched = alerts.since(start)
    enough = len(watched) >= ENOUGH_JUDGED or bool(broken)
    state = PromiseState.HOLDS if enough else PromiseState.UNKNOWN
    return _promise(watched, PromiseState.BROKEN if not length else state, length, broken)


def _breaks(alerts: JudgedAlerts) -> int | None:
    """Return the number of the alert with which the promise breaks."""
    evidence = shortfall_evidence(_TOLERANCE * alerts.promised, alerts.hit, alerts.weight)
    strong = np.flatnonzero(evidence >= 1.0 / _LEVEL)
    strong = strong[strong >= ENOUGH_JUDGED - 1]
    return int(strong[0]) if len(strong) else None


def _forgiven(alerts: JudgedAlerts) -> tuple[int, float] | None:
    """Return after how many alerts the promise is forgiven, and up to which length."""
    for attempt in range(1, len(alerts) // ENOUGH_JUDGED + 1):
        n = attempt * ENOUGH_JUDGED
        promised, hit, weight = alerts.promised[:n], alerts.hit[:n], alerts.weight[:n]
        held = longest_held(
            alerts.position[:n],
            hit,
            _FORGIVEN * promised,
            lengths=_LENGTHS,
            level=_LEVEL / (attempt * (attempt + 1)),
            weight=weight,
        )
        if held and (weight * hit).sum() >= _TOLERANCE * (weight * promised).sum():
            return n, held
    return None


def _promise(
    alerts: JudgedAlerts, state: PromiseState, length: float, broken: Sequence[int]
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
        broken_at=tuple(broken),
    )
