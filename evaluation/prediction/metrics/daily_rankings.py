"""Daily rankings of GPUs in a backtest, and the alerts of their lists."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.evaluation.prediction.metrics.daily_list import raise_alerts
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.models.prediction.ensembles import top_k_count

__all__ = ["RANKED_BY", "DailyRankings", "daily_list_alerts"]

RANKED_BY = "blend"
"""The method that orders the daily list in production."""


@dataclass(frozen=True, slots=True)
class DailyListAlerts:
    """Alerts of some lists.

    Attributes
    ----------
    row : ndarray of shape (n,)
        Row of the score table of each alert, by time.
    raised_at : ndarray of shape (n,)
        Time of the list.
    hit : ndarray of shape (n,), bool
        Whether the GPU fails within the horizon.
    caught : ndarray of shape (n,), bool
        Whether it is the first alert before its failure.
    """

    row: Int64Array
    raised_at: Int64Array
    hit: BoolArray
    caught: BoolArray


def daily_list_alerts(table: ScoreTable, listed: BoolArray) -> DailyListAlerts:
    """Return the alerts of daily lists; a listed GPU raises no further alert until it expires.

    Parameters
    ----------
    table : ScoreTable
    listed : ndarray of shape (n,), bool
        Which rows of `table.days` are on their list.
    """
    rows, moments = table.days.row[listed], table.days.day[listed]
    alerts = raise_alerts(
        table.gpu[rows], moments, table.fails_at[rows], horizon=table.protocol.horizon
    )
    listed_keys = zip(table.gpu[rows].tolist(), moments.tolist(), strict=True)
    row_of = dict(zip(listed_keys, rows.tolist(), strict=True))
    keys = zip(alerts.gpu.tolist(), alerts.raised_at.tolist(), strict=True)
    hit, seen = np.isfinite(alerts.fails_at), set[tuple[int, float]]()
    caught = np.zeros(len(hit), dtype=bool)
    for i in np.flatnonzero(hit).tolist():
        failure = int(alerts.gpu[i]), float(alerts.fails_at[i])
        caught[i] = failure in table.failures and failure not in seen
        seen.add(failure)
    row = np.array([row_of[key] for key in keys], dtype=np.int64)
    return DailyListAlerts(row, alerts.raised_at, hit, caught)


@dataclass(frozen=True)
class DailyRankings:
    """Rankings of the GPUs of each day.

    Attributes
    ----------
    table : ScoreTable
    rank, size : ndarray of shape (n,)
        Rank of each row of `table.days` on its day, and the number of GPUs of that day.
    probability : ndarray of shape (n,)
        NaN if unknown.
    """

    table: ScoreTable
    rank: Int64Array
    size: Int64Array
    probability: Float64Array

    @classmethod
    def from_table(cls, table: ScoreTable, method: str) -> DailyRankings:
        """Rank the GPUs of each day by a method."""
        days = table.days
        rank, size = np.zeros(len(days.row), dtype=np.int64), np.zeros(len(days.row), np.int64)
        for moment in np.unique(days.day).tolist():
            of_day = np.flatnonzero(days.day == moment)
            rank[of_day], size[of_day] = table.ranks(method, days.row[of_day]), len(of_day)
        probability = np.full(len(days.row), np.nan)
        if "probability" in table.frame:
            probability = table.frame["probability"].to_numpy(float)[days.row]
        return cls(table, rank, size, probability)

    def top(self, share: float) -> BoolArray:
        """Mark the top share of each day."""
        sizes, which = np.unique(self.size, return_inverse=True)
        longest = np.array([top_k_count(share, n) for n in sizes.tolist()], dtype=np.int64)
        return np.asarray(self.rank <= longest[which])

    def chosen(self, share: float, costs: ActionCosts | None) -> BoolArray:
        """Mark the production list: the top share of the fleet, with costs only what pays off."""
        marked = self.top(share)
        return marked if costs is None else marked & costs.pays_off(self.probability)

    @property
    def n_days(self) -> int:
        """Number of days."""
        return len(np.unique(self.table.days.day))
