"""Average precision window by window, so that no more than one window has to be in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import interval
from forewarn.evaluation.prediction.figures.ranking import (
    average_precision,
    average_precision_draws,
)
from forewarn.evaluation.prediction.figures.score_table import ENSEMBLES, ScoreTable

__all__ = ["WindowAverages", "averages_of", "known_mean", "mean_draws", "window_averages"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def known_mean(values: list[float | None]) -> float | None:
    """Return the mean of the values that there are; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


class WindowAverages(NamedTuple):
    """The average precision of a method on several test sets.

    Attributes
    ----------
    precisions : list of (float or None)
        None without a positive.
    draws : ndarray of shape (n_sets, n_draws)
        Of draws of machines.
    """

    precisions: list[float | None]
    draws: Floats

    @property
    def mean(self) -> float | None:
        """The mean over the sets."""
        return known_mean(self.precisions)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the mean, machines resampled."""
        return interval(mean_draws(self.draws)) if len(self.draws) else None

    @classmethod
    def joined(cls, parts: Sequence[WindowAverages]) -> WindowAverages:
        """Return those of all sets of several parts, in order."""
        precisions = [precision for part in parts for precision in part.precisions]
        return cls(precisions, np.concatenate([part.draws for part in parts]))


def window_averages(table: ScoreTable) -> dict[str, WindowAverages]:
    """Return the average precision of each method on all rows of each test window."""
    everything = [rows for _, rows in table.windows]
    return {method: averages_of(table, method, everything) for method in table.methods}


def averages_of(table: ScoreTable, method: str, sets: list[Ints]) -> WindowAverages:
    """Return the average precision of a method on each set of rows; an ensemble has none."""
    draws = np.zeros((0, len(table.draws)))
    if method in ENSEMBLES or not sets:
        return WindowAverages([None] * len(sets), draws)
    scores = table.scores[method]
    precisions = [average_precision(table.labels[rows], scores[rows]) for rows in sets]
    return WindowAverages(precisions, np.stack([_draws(table, method, rows) for rows in sets]))


def mean_draws(draws: Floats) -> Floats:
    """Return the mean over windows of each draw of machines, without those that have no value.

    Parameters
    ----------
    draws : ndarray of shape (n_windows, n_draws)
    """
    finite = np.isfinite(draws)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(finite, draws, 0.0).sum(axis=0) / finite.sum(axis=0)
    return mean


def _draws(table: ScoreTable, method: str, rows: Ints) -> Floats:
    scores = table.scores[method][rows]
    return average_precision_draws(table.labels[rows], scores, table.machine[rows], table.draws)
