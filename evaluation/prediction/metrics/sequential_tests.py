"""Tests of a precision that hold in small samples and at any time: running evidence, bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array

__all__ = ["BettingEvidence", "confidence_sequence", "shortfall_evidence", "surplus_evidence"]

# Bets on how far off a mean is: small ones find small differences, large ones large ones.
_BETS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85])
_PENALTY = -np.log1p(-_BETS) - _BETS
# Each bets that so much of what was promised is missing.
_SHORTFALL_BETS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
# Each bets that so much more than the least comes: below 1, so that no miss takes all.
_SURPLUS_BETS = np.array([0.6, 0.95])
_BLOCK_ALERTS = 30  # a stretch to watch begins with every so many alerts


@dataclass(frozen=True, slots=True)
class BettingEvidence:
    """What bets against a statement have won.

    Attributes
    ----------
    total : ndarray of shape (n,)
        After each alert, 1 being staked. While the statement is true, it ever reaches 1 / level
        with a chance of at most `level`, however often one looks.
    begin : ndarray of shape (n,)
        After each alert, where the stretch begins that has won most.
    """

    total: Float64Array
    begin: Int64Array


def shortfall_evidence(
    promised: Float64Array, hit: BoolArray, weight: Float64Array | None = None
) -> BettingEvidence:
    """Return the evidence after each alert that the hits fall short of what was promised.

    It speaks against "each alert's chance is at least what was promised". A bet b multiplies its
    stake by 1 + b w (p - hit) / (1 - p): never below 0, and in the mean at most 1 while the chance
    is at least p (Waudby-Smith and Ramdas, arXiv 2010.09686). With w = 1 that is the likelihood
    ratio of a precision of 1 - b times the promise.

    Parameters
    ----------
    promised : ndarray of shape (n,)
        Chance of a failure below 1, in the order in which the alerts were judged.
    hit : ndarray of shape (n,), bool
    weight : ndarray of shape (n,), optional
        In (0, 1].

    Examples
    --------
    >>> evidence = shortfall_evidence(np.array([0.5]), np.array([False]))
    >>> evidence.total.tolist()  # half of the stake at even odds, half waits for the next stretch
    [1.25]
    """
    return _bet_in_blocks((promised - hit) / (1.0 - promised), weight, _SHORTFALL_BETS)


def surplus_evidence(
    least: Float64Array, hit: BoolArray, weight: Float64Array | None = None
) -> BettingEvidence:
    """Return the evidence after each alert that the hits surpass the least that is wanted.

    It speaks against "each alert's chance is at most the least", by the same bets the other way
    round: 1 + b w (hit - p) / (1 - p), the likelihood ratio of 1 + b times the least.

    Parameters
    ----------
    least : ndarray of shape (n,)
        Chance of a failure, at most 0.5, in the order in which the alerts were judged.
    hit : ndarray of shape (n,), bool
    weight : ndarray of shape (n,), optional
        In (0, 1].
    """
    return _bet_in_blocks((hit - least) / (1.0 - least), weight, _SURPLUS_BETS)


def _bet_in_blocks(
    odds: Float64Array, weight: Float64Array | None, bets: Float64Array
) -> BettingEvidence:
    """Bet in stretches that begin with every 30th alert, which share the stake.

    So a long past of one kind hides no present of the other (for one stretch: tracking of a
    running risk, arXiv 2110.06177). What stretches to come are to have is kept aside.
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
    """Return bounds of the mean chance behind values in [0, 1] that hold at any time.

    An empirical-Bernstein confidence sequence at its last moment: each side has half the level.

    Examples
    --------
    >>> low, high = running_bounds(np.array([1.0, 0.0] * 200), 0.05)
    >>> 0.38 < low < 0.5 < high < 0.62
    True
    """
    if not len(values):
        return 0.0, 1.0
    weights = np.ones(len(values)) if weight is None else weight
    low = _lower_bound(values, weights, level / 2.0)
    return low, 1.0 - _lower_bound(1.0 - values, weights, level / 2.0)


def _running_means(values: Float64Array, low: Float64Array, high: Float64Array) -> Float64Array:
    """Predict each value by the mean of those before it, within its own limits."""
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
