"""How good a detector is: the right machine named, counted by pulls."""

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
    """A pull, who was faulty in it, and who was named.

    Attributes
    ----------
    truth, named : str or None
    fault : str
        Kind of fault, empty for none.
    machines : int
    delay : float or None
        Seconds from the fault to the verdict, where the right machine was named.
    strongest : tuple of (str, float)
        For each metric in order, who stood out most, and by how many thresholds.
    """

    truth: str | None
    named: str | None
    fault: str
    machines: int
    delay: float | None = None
    strongest: tuple[tuple[str, float], ...] = ()

    @property
    def right(self) -> bool:
        """Tell whether the faulty machine was named."""
        return self.truth is not None and self.named == self.truth


def evaluate_verdicts(outcomes: Sequence[PullOutcome]) -> dict[str, Any]:
    """Return precision, recall and F1, with intervals by resampling pulls.

    A pull counts once, and only the right machine is right: no window is forgiven because another
    one near it was found.

    Parameters
    ----------
    outcomes : sequence of Outcome

    Returns
    -------
    dict
        `precision` (of the pulls in which somebody was named; null if none), `recall` (of those
        with a faulty machine), `f1`, each with `_interval`; `delay_seconds`; `false_alarms`, the
        healthy pulls in which somebody was named, and `wrong`, the faulty ones in which somebody
        else was.

    Examples
    --------
    >>> pulls = [Outcome("a", "a", "ecc error", 4), Outcome("b", None, "ecc error", 4)]
    >>> found = detection_figures(pulls)
    >>> found["precision"], found["recall"]
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
    """Return what a method comes to with the thresholds that suit these pulls best.

    All its thresholds are multiplied by the number for which F1 is highest. Nobody could have
    known that number: it is what is left of a method when its thresholds are no excuse. Only the
    strongest machine of each metric is looked at, not which of several was first.

    Parameters
    ----------
    outcomes : sequence of Outcome
        With `strongest`.
    sure : float
        The first metric with somebody above so many thresholds wins; if there is none, the one
        with the strongest.

    Returns
    -------
    dict
        `f1`, `precision`, `recall`, and the number, `scale`; zeros if it never names anybody.

    Examples
    --------
    >>> pulls = [Outcome("a", None, "", 4, None, (("a", 0.4),))]
    >>> pulls += [Outcome(None, None, "", 4, None, (("b", 0.3),))]
    >>> hindsight_figures(pulls)
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
    """Return what naming a machine of every pull at random comes to, by arithmetic."""
    hits = sum(1.0 / outcome.machines for outcome in outcomes if outcome.truth is not None)
    faulty = sum(outcome.truth is not None for outcome in outcomes)
    precision, recall = hits / max(len(outcomes), 1), hits / max(faulty, 1)
    total = precision + recall
    f1 = 2.0 * precision * recall / total if total else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}
