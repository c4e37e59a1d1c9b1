"""Promotion gate: checks a challenger's out-of-sample performance and its predictions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.prediction.metrics.backtest_metrics import ChampionComparison
from forewarn.features.array_types import Float64Array

__all__ = ["GateDecision", "decide_promotion"]

# Maximum ratio between the mean probabilities of two plausible predictors of one fleet.
_MAX_MEAN_RATIO = 20.0


@dataclass(frozen=True, slots=True)
class GateDecision:
    """Result of the gate.

    Attributes
    ----------
    promoted : bool
    reasons : tuple of str
        Reasons for a refusal; empty if promoted.
    comparison : ChampionComparison or None
        None if there was no champion.
    """

    promoted: bool
    reasons: tuple[str, ...]
    comparison: ChampionComparison | None


def decide_promotion(
    comparison: ChampionComparison | None,
    *,
    margin: float,
    scores: Float64Array,
    probability: Float64Array,
    champion: Float64Array | None,
    broken: Mapping[str, str],
    first: bool = False,
) -> GateDecision:
    """Decide on a promotion.

    A stale model is a risk, so a challenger passes unless a check fails. The first one replaces
    the built-in rules, which do not grow stale, so it has to be at least as good as they are.

    Parameters
    ----------
    comparison : ChampionComparison or None
        With the champion; without one, with the built-in rules.
    margin : float
        Tolerated loss, as a share of the champion's average precision.
    scores, probability : ndarray of shape (n,)
        Predictions of the refitted model for the newest instances.
    champion : ndarray of shape (n,) or None
        Probabilities of the champion for the same instances.
    broken : mapping of str to str
        Input columns that became constant or empty, with that state.
    first : bool, optional
        There is no champion, so the built-in rules make the lists.
    """
    reasons = [f"input `{name}` became {what}" for name, what in sorted(broken.items())]
    reasons += _implausible_values(scores, probability, champion)
    reasons += _losses(comparison, 0.0 if first else margin)
    if first and comparison is None:
        reasons.append(
            "there is no finished window with a failure on which to compare it with the built-in "
            "rules"
        )
    return GateDecision(not reasons, tuple(reasons), comparison)


def _losses(comparison: ChampionComparison | None, margin: float) -> list[str]:
    """Return why a challenger is worse than what makes the lists now, if it is."""
    if comparison is None or comparison.difference >= -margin * comparison.champion:
        return []
    far = f"more than {margin:.0%} " if margin else ""
    whose = "the built-in rules'" if comparison.by_rules else "the champion's"
    low, high = comparison.interval or (math.nan, math.nan)
    between = "" if math.isnan(low) else f" (difference {low:+.4f} to {high:+.4f})"
    return [
        f"average precision {comparison.challenger:.4f} on {comparison.windows} finished windows "
        f"is {far}below {whose} {comparison.champion:.4f}{between}"
    ]


def _implausible_values(
    scores: Float64Array, probability: Float64Array, champion: Float64Array | None
) -> list[str]:
    """Return what is implausible about the predictions."""
    reasons = []
    for name, values in (("scores", scores), ("probabilities", probability)):
        if not len(values):
            reasons.append(f"no {name}: no GPU has an instance")
        elif not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
            reasons.append(f"{name} are outside 0 to 1")
        elif len(values) > 1 and np.ptp(values) == 0:
            reasons.append(f"{name} are all {values[0]:.4g}")
    if not reasons and champion is not None and len(champion):
        ratio = float(probability.mean() / max(champion.mean(), 1e-12))
        if not 1 / _MAX_MEAN_RATIO <= ratio <= _MAX_MEAN_RATIO:
            reasons.append(f"the mean probability is {ratio:.3g} times the champion's")
    return reasons
