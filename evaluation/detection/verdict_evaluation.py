"""Precision and recall of a detector: whether it identifies the faulty machine, per pull."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import percentile_interval

__all__ = ["PullOutcome", "evaluate_best_thresholds", "evaluate_random_guess", "evaluate_verdicts"]

_N_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class PullOutcome:
    """The true and the reported machine of one pull.

    Attributes
    ----------
    truth, named : str or None
    fault : str
        Kind of fault; empty for none.
    machines : int
    delay : float or None
        Seconds from the fault to the verdict, if the right machine was reported.
    strongest : tuple of (str, float)
        Per metric in order: the machine with the highest score, and that score in thresholds.
    """

    truth: str | None
    named: str | None
    fault: str
    machines: int
    delay: float | None = None
    strongest: tuple[tuple[str, float], ...] = ()

    @property
    def right(self) -> bool:
        """Tell whether the faulty machine was reported."""
        return self.truth is not None and self.named == self.truth


def evaluate_verdicts(outcomes: Sequence[PullOutcome]) -> dict[str, Any]:
    """Return precision, recall and F1, with bootstrap intervals over pulls.

    A pull counts once, and only the right machine is a hit. There is no point adjustment: a hit in
    one window does not make false windows near it correct.

    Parameters
    ----------
    outcomes : sequence of PullOutcome

    Returns
    -------
    dict
        `precision` (over the pulls with a reported machine; null if there are none), `recall` (over
        the pulls with a faulty machine), `f1`, each with `_interval`; `delay_seconds`;
        `false_alarms`, the healthy pulls with a reported machine; and `wrong`, the faulty pulls in
        which another machine was reported.

    Examples
    --------
    >>> pulls = [PullOutcome("a", "a", "ecc error", 4), PullOutcome("b", None, "ecc error", 4)]
    >>> scores = evaluate_verdicts(pulls)
    >>> scores["precision"], scores["recall"]
    (1.0, 0.5)
    """
    right = np.array([outcome.right for outcome in outcomes], dtype=np.float64)
    named = np.array([outcome.named is not None for outcome in outcomes], dtype=np.float64)
    faulty = np.array([outcome.truth is not None for outcome in outcomes], dtype=np.float64)
    n = len(outcomes)
    weights = np.random.default_rng(0).multinomial(
        n, np.full(n, 1.0 / max(n, 1)), size=_N_RESAMPLES
    )
    once = _rates(np.ones((1, n)), right, named, faulty)
    drawn = _rates(weights.astype(np.float64), right, named, faulty)
    figures: dict[str, Any] = {}
    for name, value in once.items():
        figures[name] = None if np.isnan(value[0]) else float(value[0])
        figures[f"{name}_interval"] = percentile_interval(drawn[name])
    delays = [outcome.delay for outcome in outcomes if outcome.delay is not None]
    return figures | {
        "pulls": n,
        "faulty": int(faulty.sum()),
        "false_alarms": int((named * (1 - faulty)).sum()),
        "wrong": int((named * faulty * (1 - right)).sum()),
        "delay_seconds": {
            f"p{q}": float(np.quantile(delays, q / 100)) if delays else None for q in (10, 50, 90)
        },
    }


def _rates(
    weights: npt.NDArray[np.float64],
    right: npt.NDArray[np.float64],
    named: npt.NDArray[np.float64],
    faulty: npt.NDArray[np.float64],
) -> dict[str, npt.NDArray[np.float64]]:
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = (weights @ right) / (weights @ named)
        recall = (weights @ right) / (weights @ faulty)
        f1 = 2.0 * (weights @ right) / (weights @ named + weights @ faulty)
    return {"precision": precision, "recall": recall, "f1": f1}


def evaluate_best_thresholds(
    outcomes: Sequence[PullOutcome], sure: float = 1.0
) -> dict[str, float]:
    """Return the scores of a method with the thresholds that suit these pulls best.

    All thresholds are multiplied by the factor with the highest F1. That factor is not known in
    advance; the result is an upper bound that removes the choice of thresholds from a comparison.
    Only the machine with the highest score on each metric counts, not which machine came first.

    Parameters
    ----------
    outcomes : sequence of PullOutcome
        With `strongest`.
    sure : float
        The first metric with a score above this many thresholds decides; without one, the metric
        with the highest score.

    Returns
    -------
    dict
        `f1`, `precision`, `recall`, and the factor, `scale`; zeros if no machine is ever reported.

    Examples
    --------
    >>> pulls = [PullOutcome("a", None, "", 4, None, (("a", 0.4),))]
    >>> pulls += [PullOutcome(None, None, "", 4, None, (("b", 0.3),))]
    >>> evaluate_best_thresholds(pulls)
    {'f1': 1.0, 'precision': 1.0, 'recall': 1.0, 'scale': 0.4}
    """
    width = max((len(outcome.strongest) for outcome in outcomes), default=0)
    strength, right = np.full((len(outcomes), width), -np.inf), np.zeros((len(outcomes), width))
    for row, outcome in enumerate(outcomes):
        for column, (machine, by) in enumerate(outcome.strongest):
            strength[row, column], right[row, column] = by, machine == outcome.truth
    faulty = sum(outcome.truth is not None for outcome in outcomes)
    best = {"f1": 0.0, "precision": 0.0, "recall": 0.0, "scale": 0.0}
    strongest = strength.argmax(axis=1) if width else np.zeros(len(outcomes), dtype=np.int64)
    for scale in np.unique(strength[np.isfinite(strength)]):
        named, certain = strength >= scale, strength >= sure * scale
        first = np.where(certain.any(axis=1), certain.argmax(axis=1), strongest)
        n_named = int(named.any(axis=1).sum())
        hits = float((right * named)[np.arange(len(right)), first].sum())
        f1 = 2.0 * hits / (n_named + faulty)
        if f1 > best["f1"]:
            values = (f1, hits / n_named, hits / faulty, float(scale))
            best = dict(zip(best, values, strict=True))
    return best


def evaluate_random_guess(outcomes: Sequence[PullOutcome]) -> dict[str, float]:
    """Return the expected scores of reporting a random machine in every pull."""
    hits = sum(1.0 / outcome.machines for outcome in outcomes if outcome.truth is not None)
    faulty = sum(outcome.truth is not None for outcome in outcomes)
    precision, recall = hits / max(len(outcomes), 1), hits / max(faulty, 1)
    total = precision + recall
    f1 = 2.0 * precision * recall / total if total else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}
