"""Ranking metrics: precision@K, recall@K, accuracy and average precision."""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import BoolArray, Float64Array, Int8Array, Int64Array

__all__ = [
    "accuracy",
    "average_precision",
    "average_precision_draws",
    "flag_precision",
    "flag_recall",
]


def flag_precision(labels: Int8Array, flags: BoolArray) -> float | None:
    """Return the share of positives among flagged instances; None if nothing is flagged.

    With the K highest scores flagged, this is precision@K (arXiv 2201.11853, evaluation metrics).
    """
    return float(np.mean(labels[flags] == 1)) if flags.any() else None


def flag_recall(labels: Int8Array, flags: BoolArray) -> float | None:
    """Return the share of flagged instances among positives; None without positives."""
    positive = labels == 1
    return float(np.mean(flags[positive])) if positive.any() else None


def accuracy(labels: Int8Array, scores: Float64Array, threshold: float) -> float | None:
    """Return the share of instances on the right side of the threshold; None without instances."""
    return float(np.mean((scores >= threshold) == (labels == 1))) if len(labels) else None


def average_precision(labels: Int8Array, scores: Float64Array) -> float | None:
    """Return the mean, over positives, of the precision at their score; None without positives.

    Examples
    --------
    >>> average_precision(np.array([1, 0, 1], np.int8), np.array([0.9, 0.8, 0.7]))
    0.8333333333333333
    """
    machine = np.zeros(len(labels), dtype=np.int64)
    average = float(average_precision_draws(labels, scores, machine, np.ones((1, 1)))[0])
    return None if np.isnan(average) else average


def average_precision_draws(
    labels: Int8Array, scores: Float64Array, machine: Int64Array, draws: Float64Array
) -> Float64Array:
    """Return the average precision for each bootstrap draw of machines.

    Parameters
    ----------
    labels, scores, machine : ndarray of shape (n,)
    draws : ndarray of shape (n_draws, n_machines)
        How often each machine was drawn.

    Returns
    -------
    ndarray of shape (n_draws,)
        NaN for a draw without positives. Tied scores count together, so row order has no effect.
    """
    order = np.argsort(-scores, kind="stable")
    positive = np.flatnonzero(labels[order] == 1)
    descending = -scores[order]
    last_tied = np.searchsorted(descending, descending[positive], side="right") - 1
    ahead = np.searchsorted(last_tied, np.arange(len(order)))
    shape = (len(positive) + 1, draws.shape[1])
    cell = ahead * shape[1] + machine[order]
    listed = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)[:-1].cumsum(axis=0)
    hits = np.bincount(cell[positive], minlength=shape[0] * shape[1])
    hits = hits.reshape(shape)[:-1].cumsum(axis=0)
    weight = draws[:, machine[order[positive]]]
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(weight > 0, (draws @ hits.T) / (draws @ listed.T), 0.0)
        return np.asarray((weight * precision).sum(axis=1) / weight.sum(axis=1))
