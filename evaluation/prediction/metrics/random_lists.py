"""Expected results of random daily lists, which one draw would give with a large error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.models.prediction.ensembles import top_k_count

__all__ = ["RANDOM", "RandomLists"]

RANDOM = "random"
"""The method whose lists are random."""


@dataclass(frozen=True)
class RandomLists:
    """Lists of GPUs drawn at random each day, as long as the lists of the other methods.

    Attributes
    ----------
    table : ScoreTable
    moments : ndarray of shape (n_days,)
        Times of the lists.
    day : ndarray of shape (n,)
        Number of the day of each row of `table.days`.
    length : ndarray of shape (n_days,)
        Number of listed GPUs.
    """

    table: ScoreTable
    moments: Int64Array
    day: Int64Array
    length: Int64Array

    @classmethod
    def from_table(cls, table: ScoreTable) -> RandomLists:
        """Return the lists of the days of a table."""
        moments, day, size = np.unique(table.days.day, return_inverse=True, return_counts=True)
        length = [top_k_count(table.protocol.share, n) for n in size.tolist()]
        return cls(table, moments, day, np.array(length, dtype=np.int64))

    @property
    def hits(self) -> Float64Array:
        """Expected number of listed GPUs that fail within the horizon, by day.

        It is the length of the list times the share of the scored GPUs that fail.
        """
        failing = self.table.labels[self.table.days.row] == 1
        n_failing = np.bincount(self.day[failing], minlength=len(self.moments))
        return np.asarray(self.length * n_failing / np.bincount(self.day))

    @property
    def precision(self) -> float | None:
        """Expected share of all listed GPUs that fail within the horizon; None without a list."""
        return float(self.hits.sum() / self.length.sum()) if len(self.moments) else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Bootstrap interval of the precision, resampling machines."""
        return (
            percentile_interval(self.precision_draws(self.table.draws)) if len(self.day) else None
        )

    def precision_draws(self, draws: Float64Array) -> Float64Array:
        """Return the expected precision for each bootstrap draw of machines.

        Parameters
        ----------
        draws : ndarray of shape (n_draws, n_machines)
        """
        rows, shape = self.table.days.row, (len(self.moments), draws.shape[1])
        cell = self.day * shape[1] + self.table.machine[rows]
        failing = cell[self.table.labels[rows] == 1]
        n, n_failing = (
            draws @ np.bincount(some, minlength=shape[0] * shape[1]).reshape(shape).T
            for some in (cell, failing)
        )
        hits = self.length * n_failing / np.maximum(n, 1)
        return np.asarray(hits.sum(axis=1) / self.length.sum())

    @cached_property
    def alerts(self) -> Float64Array:
        """Probability that each row of `table.days` raises an alert.

        A GPU is listed independently on each day and raises no alert until its last one expires.
        Alerts of a GPU within one horizon exclude each other, so their probabilities add up.
        """
        days, horizon = self.table.days, self.table.protocol.horizon
        listed = self.length / np.bincount(self.day)
        raised, begin = np.zeros(len(days.row)), 0
        gpu = self.table.gpu[days.row]
        active = np.zeros(int(gpu.max(initial=-1)) + 1)
        for number, moment in enumerate(self.moments.tolist()):
            own = np.flatnonzero(self.day == number)
            while days.day[begin] + horizon <= moment:
                over = np.flatnonzero(days.day == days.day[begin])
                active[gpu[over]] -= raised[over]
                begin = int(over[-1]) + 1
            raised[own] = listed[number] * (1.0 - active[gpu[own]])
            active[gpu[own]] += raised[own]
        return raised

    @property
    def caught(self) -> float:
        """Expected number of failures with an alert before them."""
        rows, known = self.table.days.row, self.table.failures
        failing = np.isfinite(self.table.fails_at[rows])
        gpu, fails_at = self.table.gpu[rows[failing]], self.table.fails_at[rows[failing]]
        failures = zip(gpu.tolist(), fails_at.tolist(), strict=True)
        counts = np.array([failure in known for failure in failures], dtype=bool)
        return float(self.alerts[failing][counts].sum())
