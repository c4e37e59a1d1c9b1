"""Sequential tests of a precision, valid in small samples and at any time (e-processes)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array

__all__ = ["BettingEvidence", "confidence_sequence", "shortfall_evidence", "surplus_evidence"]

# Bet sizes: small bets detect small differences, large bets large ones.
_BETS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85])
_PENALTY = -np.log1p(-_BETS) - _BETS
# Bets on a relative shortfall from the predicted probability.
_SHORTFALL_BETS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
# Bets on a relative surplus; below 1, so that a single miss does not lose the whole stake.
_SURPLUS_BETS = np.array([0.6, 0.95])
_BLOCK_ALERTS = 30  # a new block starts after this many alerts


@dataclass(frozen=True, slots=True)
class BettingEvidence:
    """Wealth of bets against a hypothesis (e-process).

    Attributes
    ----------
    total : ndarray of shape (n,)
        Wealth after each alert, starting from 1. Under the hypothesis it ever reaches 1 / level
        with probability at most `level`, regardless of how often it is checked.
    begin : ndarray of shape (n,)
        Start of the block with the highest wealth after each alert.
    """

    total: Float64Array
    begin: Int64Array


def shortfall_evidence(
    predicted: Float64Array, hit: BoolArray, weight: Float64Array | None = None
) -> BettingEvidence:
    """Return the evidence, after each alert, that hits fall short of the predicted probabilities.

    The hypothesis is that each failure probability is at least the predicted one. A bet b
    multiplies its stake by 1 + b w (p - hit) / (1 - p). The factor is never negative, and its mean
    is at most 1 while the probability is at least p (Waudby-Smith and Ramdas, arXiv 2010.09686).
    With w = 1 it is the likelihood ratio of a precision of 1 - b times the predicted probability.

    Parameters
    ----------
    predicted : ndarray of shape (n,)
        Predicted failure probability below 1, in the order of known outcomes.
    hit : ndarray of shape (n,), bool
    weight : ndarray of shape (n,), optional
        In (0, 1].

    Examples
    --------
    >>> evidence = shortfall_evidence(np.array([0.5]), np.array([False]))
    >>> evidence.total.tolist()  # half of the stake at even odds; half is kept for the next block
    [1.25]
    """
    return _bet_in_blocks((predicted - hit) / (1.0 - predicted), weight, _SHORTFALL_BETS)


def surplus_evidence(
    least: Float64Array, hit: BoolArray, weight: Float64Array | None = None
) -> BettingEvidence:
    """Return the evidence, after each alert, that hits exceed the given minimum.

    The hypothesis is that each failure probability is at most the minimum. The factor of a bet is
    1 + b w (hit - p) / (1 - p), the likelihood ratio of 1 + b times the minimum.

    Parameters
    ----------
    least : ndarray of shape (n,)
        Failure probability, at most 0.5, in the order of known outcomes.
    hit : ndarray of shape (n,), bool
    weight : ndarray of shape (n,), optional
        In (0, 1].
    """
    return _bet_in_blocks((hit - least) / (1.0 - least), weight, _SURPLUS_BETS)


def _bet_in_blocks(
    odds: Float64Array, weight: Float64Array | None, bets: Float64Array
) -> BettingEvidence:
    """Bet in blocks that start after every 30 alerts and share the stake.

    A long good past therefore does not hide a bad present, or the reverse (for a single block:
    tracking of a running risk, arXiv 2110.06177). The stake of future blocks is reserved.
    """
    n = len(odds)
    weighted = odds if weight is None else weight * odds
    number = (np.arange(n) // _BLOCK_ALERTS + 1).astype(np.float64)
    total, most, begin = 1.0 / (number + 1.0), np.zeros(n), np.zeros(n, dtype=np.int64)
    logs = np.zeros((len(bets), n + 1))
    logs[:, 1:] = np.log1p(bets[:, None] * weighted[None, :]).cumsum(axis=1)
    for start in range(0, n, _BLOCK_ALERTS):
        share = 1.0 / (number[start] * (number[start] + 1.0))
        won = logs[:, start + 1 :] - logs[:, start, None]
        wealth = share * np.exp(np.minimum(won, 700.0)).mean(axis=0)
        total[start:] += wealth
        begin[start:][wealth > most[start:]] = start
        most[start:] = np.maximum(most[start:], wealth)
    return BettingEvidence(total, begin)


def confidence_sequence(
    values: Float64Array, level: float, weight: Float64Array | None = None
) -> tuple[float, float]:
    """Return the current bounds of an empirical-Bernstein confidence sequence for values in [0, 1].

    The bounds of the mean probability hold at any time. Each side uses half the level.

    Examples
    --------
    >>> low, high = confidence_sequence(np.array([1.0, 0.0] * 200), 0.05)
    >>> 0.38 < low < 0.5 < high < 0.62
    True
    """
    if not len(values):
        return 0.0, 1.0
    weights = np.ones(len(values)) if weight is None else weight
    low = _lower_bound(values, weights, level / 2.0)
    return low, 1.0 - _lower_bound(1.0 - values, weights, level / 2.0)


def _running_means(values: Float64Array, low: Float64Array, high: Float64Array) -> Float64Array:
    """Predict each value by the mean of the preceding ones, clipped to its limits."""
    counted = np.arange(1, len(values) + 1)
    before = np.concatenate([[0.0], np.cumsum(values)[:-1]]) / counted
    return np.clip(before, low, high)


def _lower_bound(values: Float64Array, weights: Float64Array, level: float) -> float:
    weighted, zero = weights * values, np.zeros(len(values))
    spread = float(((weighted - _running_means(weighted, zero, weights)) ** 2).sum())
    least, most = 0.0, float(len(values))
    for _ in range(60):
        middle = (least + most) / 2.0
        exponents = np.clip(_BETS * middle - _PENALTY * spread, -700.0, 700.0)
        if float(np.exp(exponents).mean()) >= 1.0 / level:
            most = middle
        else:
            least = middle
    return max(0.0, (float(weighted.sum()) - most) / float(weights.sum()))
