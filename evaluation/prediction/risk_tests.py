"""Tests of a precision that hold in small samples and at any time: p-values, running evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = [
    "hoeffding_bentkus",
    "longest_held",
    "running_bounds",
    "shortfall_evidence",
    "worst_stretch",
]

Floats = npt.NDArray[np.float64]
# Bets on how far off a mean is: small ones find small differences, large ones large ones.
_BETS = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85])
_PENALTY = -np.log1p(-_BETS) - _BETS
# Each bets that so much of what was promised is missing.
_MISSING = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
_STRETCH = 30  # a stretch to watch begins with every so many alerts


def hoeffding_bentkus(risk: float, n: int, limit: float) -> float:
    """Return the p-value of "the expected loss is above `limit`" for n losses in [0, 1].

    The smaller of Hoeffding's bound in its tight form and Bentkus's (arXiv 2110.01052, section
    3.1): exp(-n kl(risk, limit)) and e P(Bin(n, limit) <= ceil(n risk)).

    Parameters
    ----------
    risk : float
        Mean of the losses.
    n : int
        1 is returned for none.
    limit : float
        Between 0 and 1.

    Examples
    --------
    >>> hoeffding_bentkus(0.5, 100, 0.5), round(hoeffding_bentkus(0.0, 10, 0.5), 6)
    (1.0, 0.000977)
    """
    if n == 0 or risk >= limit:
        return 1.0
    # Imported here: it takes a sixth of a second, and most daily lists judge no promise.
    from scipy.special import bdtr

    bentkus = math.e * float(bdtr(math.ceil(n * risk - 1e-9), n, limit))
    return min(1.0, math.exp(-n * _kl(risk, limit)), bentkus)


def _kl(a: float, b: float) -> float:
    """Return the Kullback-Leibler divergence of two chances; b is above 0."""
    if b >= 1.0:
        return math.inf
    parts = [0.0 if a <= 0.0 else a * math.log(a / b)]
    parts.append(0.0 if a >= 1.0 else (1.0 - a) * math.log((1.0 - a) / (1.0 - b)))
    return sum(parts)


def longest_held(
    position: Floats,
    hit: npt.NDArray[np.bool_],
    least: Floats,
    *,
    lengths: Sequence[float],
    level: float,
    weight: Floats | None = None,
) -> float:
    """Return the longest list whose precision is above what it has to be; 0 if none is.

    Learn-then-Test (arXiv 2110.01052, section 3.2): the lengths are tested from the shortest on,
    each at the whole level, up to the first that is not sure. So the chance that any length that
    is returned falls short is at most `level`.

    Parameters
    ----------
    position : ndarray of shape (n,)
        Where each alert stood on its list, in (0, 1]; 1 is the end of the list.
    hit : ndarray of shape (n,), bool
    least : ndarray of shape (n,)
        The precision that has to be surpassed, for each alert.
    lengths : sequence of float
        In (0, 1], ascending.
    level : float
    weight : ndarray of shape (n,), optional
        In (0, 1]; for alerts that were left alone with different chances, the inverse of these.
    """
    weights = np.ones(len(hit)) if weight is None else weight
    held = 0.0
    for length in lengths:
        rows = position <= length + 1e-9
        n = int(rows.sum())
        limit = float((weights * (1.0 - least))[rows].sum() / max(1, n))
        if hoeffding_bentkus(0.0, n, limit) > level:
            continue
        risk = float((weights * ~hit)[rows].sum() / n)
        if hoeffding_bentkus(risk, n, limit) > level:
            break
        held = length
    return held


def shortfall_evidence(
    promised: Floats, hit: npt.NDArray[np.bool_], weight: Floats | None = None
) -> Floats:
    """Return the evidence after each alert that the hits fall short of what was promised.

    While each alert's chance is at least what was promised, the evidence ever reaches 1 / level
    with a chance of at most `level`. The running risk is watched in stretches that begin with
    every 30th alert, so that a long good past hides no bad present; the level is shared among
    them (arXiv 2110.06177 for one stretch).

    Parameters
    ----------
    promised : ndarray of shape (n,)
        Chance of a failure below 1, in the order in which the alerts were judged.
    hit : ndarray of shape (n,), bool
    weight : ndarray of shape (n,), optional
        In (0, 1].
    """
    weights = np.ones(len(hit)) if weight is None else weight
    evidence, left = np.zeros(len(hit)), 1.0
    for start, share in _stretches(len(hit)):
        evidence[:start] += share
        part = slice(start, None)
        evidence[part] += share * _wealth(promised[part], hit[part], weights[part])
        left -= share
    return evidence + left


def worst_stretch(
    promised: Floats, hit: npt.NDArray[np.bool_], weight: Floats | None = None
) -> int:
    """Return where the stretch begins that is the strongest evidence after the last alert."""
    weights = np.ones(len(hit)) if weight is None else weight
    last = {
        start: share * _wealth(promised[start:], hit[start:], weights[start:])[-1]
        for start, share in _stretches(len(hit))
    }
    return max(last, key=lambda start: last[start])


def _stretches(n: int) -> list[tuple[int, float]]:
    """Return the begin of each stretch to watch, and its share of the level."""
    starts = range(0, n, _STRETCH)
    return [(start, 1.0 / (number * (number + 1))) for number, start in enumerate(starts, 1)]


def _wealth(promised: Floats, hit: npt.NDArray[np.bool_], weights: Floats) -> Floats:
    """Return what bets against a promise have won after each alert, 1 being staked.

    A bet b multiplies its stake by 1 + b w (p - hit) / (1 - p): never below 0, and in the mean at
    most 1 while the chance is at least p (Waudby-Smith and Ramdas, arXiv 2010.09686). With w = 1
    that is the likelihood ratio of a precision of 1 - b times the promise.
    """
    odds = weights * (promised - hit) / (1.0 - promised)
    won = np.log1p(_MISSING[:, None] * odds[None, :]).cumsum(axis=1)
    return np.asarray(np.exp(np.minimum(won, 700.0)).mean(axis=0))


def running_bounds(
    values: Floats, level: float, weight: Floats | None = None
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
    low = _lower(values, weights, level / 2.0)
    return low, 1.0 - _lower(1.0 - values, weights, level / 2.0)


def _predicted(values: Floats, low: Floats, high: Floats) -> Floats:
    """Predict each value by the mean of those before it, within its own limits."""
    counted = np.arange(1, len(values) + 1)
    before = np.concatenate([[0.0], np.cumsum(values)[:-1]]) / counted
    return np.clip(before, low, high)


def _lower(values: Floats, weights: Floats, level: float) -> float:
    weighted, zero = weights * values, np.zeros(len(values))
    spread = float(((weighted - _predicted(weighted, zero, weights)) ** 2).sum())
    least, most = 0.0, float(len(values))
    for _ in range(60):
        middle = (least + most) / 2.0
        exponents = np.clip(_BETS * middle - _PENALTY * spread, -700.0, 700.0)
        if float(np.exp(exponents).mean()) >= 1.0 / level:
            most = middle
        else:
            least = middle
    return max(0.0, (float(weighted.sum()) - most) / float(weights.sum()))
