"""Ranks metrics by how well they separate faulty from healthy machines (Minder, section 4.3)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from forewarn.features.array_types import BoolArray, Float32Array, Float64Array

__all__ = ["max_abs_z", "rank_metrics"]


_MAX_DEPTH = 5


def max_abs_z(series: Float32Array, window: int, span: int) -> float:
    """Return the largest |z| of any machine relative to all machines, averaged over a span.

    Parameters
    ----------
    series : ndarray of shape (n_machines, n_ticks)
        Scaled, NaN where missing.
    window : int
        Ticks that are averaged before machines are compared.
    span : int
        Ticks for which a machine has to deviate, so that jitters do not count.
    """
    n_ticks = series.shape[1] // window * window
    if not n_ticks or len(series) < 2:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an empty slice gives NaN
        means = np.nanmean(series[:, :n_ticks].reshape(len(series), -1, window), axis=2)
        spread = np.nanstd(means, axis=0)
        z = (means - np.nanmean(means, axis=0)) / np.where(spread > 1e-6, spread, np.inf)
    z = np.nan_to_num(z)
    n = min(max(span // window, 1), z.shape[1])
    total = np.cumsum(np.concatenate([np.zeros((len(z), 1)), z], axis=1), axis=1)
    return float(np.abs((total[:, n:] - total[:, :-n]) / n).max())


def rank_metrics(
    names: Sequence[str], largest: Float64Array, faulty: BoolArray, seed: int
) -> list[tuple[str, float]]:
    """Order metrics by their importance in a decision tree.

    Parameters
    ----------
    names : sequence of str
    largest : ndarray of shape (n_pulls, n_metrics)
        `max_abs_z` of every pull.
    faulty : ndarray of shape (n_pulls,), bool
    seed : int

    Returns
    -------
    list of (str, float)
        Name and importance, the most important first; metrics of no importance keep their order.
    """
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=_MAX_DEPTH, class_weight="balanced", random_state=seed)
    tree.fit(largest, faulty)
    gains = zip(names, tree.feature_importances_.tolist(), strict=True)
    return sorted(gains, key=lambda gain: -gain[1])
