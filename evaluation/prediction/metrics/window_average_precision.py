"""Average precision by test window, so that only one window has to be in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.prediction.metrics.ranking_metrics import (
    average_precision,
    average_precision_draws,
)
from forewarn.evaluation.prediction.metrics.score_table import ENSEMBLES, ScoreTable
from forewarn.features.array_types import Float64Array, Int64Array

__all__ = [
    "WindowAveragePrecision",
    "average_precision_by_set",
    "average_precision_of_scores",
    "mean_draws",
    "mean_or_none",
    "window_average_precision",
]


def mean_or_none(values: list[float | None]) -> float | None:
    """Return the mean without None values; None if there are no others."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


class WindowAveragePrecision(NamedTuple):
    """Average precision of a method on several test sets.

    Attributes
    ----------
    precisions : list of (float or None)
        None without positives.
    draws : ndarray of shape (n_sets, n_draws)
        Values for bootstrap draws of machines.
    """

    precisions: list[float | None]
    draws: Float64Array

    @property
    def mean(self) -> float | None:
        """Mean over the sets."""
        return mean_or_none(self.precisions)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Bootstrap interval of the mean, resampling machines."""
        return percentile_interval(mean_draws(self.draws)) if len(self.draws) else None

    @classmethod
    def joined(cls, parts: Sequence[WindowAveragePrecision]) -> WindowAveragePrecision:
        """Concatenate the sets of several parts."""
        precisions = [precision for part in parts for precision in part.precisions]
        return cls(precisions, np.concatenate([part.draws for part in parts]))


def window_average_precision(table: ScoreTable) -> dict[str, WindowAveragePrecision]:
    """Return the average precision of each method on all rows of each test window."""
    everything = [rows for _, rows in table.windows]
    return {method: average_precision_by_set(table, method, everything) for method in table.methods}


def average_precision_by_set(
    table: ScoreTable, method: str, sets: list[Int64Array]
) -> WindowAveragePrecision:
    """Return the average precision of a method on each set of rows; None values for an ensemble."""
    if method in ENSEMBLES or not sets:
        return WindowAveragePrecision([None] * len(sets), np.zeros((0, len(table.draws))))
    return average_precision_of_scores(table, table.scores[method], sets)


def average_precision_of_scores(
    table: ScoreTable, scores: Float64Array, sets: list[Int64Array]
) -> WindowAveragePrecision:
    """Return the average precision of scores of all rows on each set of rows, at least one."""
    labels, machine = table.labels, table.machine
    return WindowAveragePrecision(
        [average_precision(labels[rows], scores[rows]) for rows in sets],
        np.stack(
            [
                average_precision_draws(labels[rows], scores[rows], machine[rows], table.draws)
                for rows in sets
            ]
        ),
    )


def mean_draws(draws: Float64Array) -> Float64Array:
    """Return the mean over windows for each bootstrap draw, ignoring NaN.

    Parameters
    ----------
    draws : ndarray of shape (n_windows, n_draws)
    """
    finite = np.isfinite(draws)
    with np.errstate(invalid="ignore"):
        mean: Float64Array = np.where(finite, draws, 0.0).sum(axis=0) / finite.sum(axis=0)
    return mean
