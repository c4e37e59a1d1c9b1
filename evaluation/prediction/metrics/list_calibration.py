"""Calibration monitoring of daily lists throughout a backtest, and the flags it blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.evaluation.prediction.metrics.calibration_monitor import (
    LabelledAlerts,
    MonitoredCalibration,
    monitor_calibration,
)
from forewarn.evaluation.prediction.metrics.daily_rankings import (
    RANKED_BY,
    DailyListAlerts,
    DailyRankings,
    daily_list_alerts,
)
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.features.array_types import BoolArray, Float64Array, Int64Array

__all__ = [
    "CalibrationDay",
    "DatedChange",
    "ListCalibration",
    "ListCalibrationMetrics",
    "list_calibration",
]


@dataclass(frozen=True, slots=True)
class CalibrationDay:
    """Alerts of one daily list, and the flagged ones among them."""

    date: str
    alerts: int
    expected: float
    hits: int
    flagged: int
    flagged_hits: int


@dataclass(frozen=True, slots=True)
class DatedChange:
    """A `CalibrationChange` and the day on which it was detected."""

    date: str
    judged: int
    length: float
    alerts: int
    hits: int
    expected: float


@dataclass(frozen=True, slots=True)
class ListCalibrationMetrics:
    """Metrics for a report: final state, changes and days."""

    state: str
    judged: int
    hits: int
    promised: float | None
    precision: float | None
    bounds: tuple[float, float]
    broken: int
    changes: Sequence[DatedChange] = ()
    days: Sequence[CalibrationDay] = ()


@dataclass(frozen=True, slots=True)
class ListCalibration:
    """Alerts of a backtest, and whether each was flagged given the calibration known at its time.

    Attributes
    ----------
    final : MonitoredCalibration
        State after the outcomes of all alerts are known.
    raised_at : ndarray of shape (n,)
        Time of each alert, in order.
    predicted : ndarray of shape (n,)
        Predicted failure probability.
    hit, flagged : ndarray of shape (n,), bool
        Whether the GPU failed within the horizon, and whether it was flagged when the alert was
        raised.
    horizon : int
        Nanoseconds until the outcome of an alert is known.
    """

    final: MonitoredCalibration
    raised_at: Int64Array
    predicted: Float64Array
    hit: BoolArray
    flagged: BoolArray
    horizon: int

    def metrics(self) -> ListCalibrationMetrics:
        """Return the metrics for a report."""
        end, moments = self.final, np.unique(self.raised_at).tolist()
        changes = [
            DatedChange(_date(int(self.raised_at[c.judged - 1]) + self.horizon), **asdict(c))
            for c in end.changes
        ]
        return ListCalibrationMetrics(
            state=str(end.state),
            judged=end.judged,
            hits=end.hits,
            promised=end.predicted,
            precision=end.precision,
            bounds=end.bounds,
            broken=len(end.broken_at),
            changes=changes,
            days=[self._day(moment, self.raised_at == moment) for moment in moments],
        )

    def _day(self, moment: int, of_day: BoolArray) -> CalibrationDay:
        return CalibrationDay(
            date=_date(moment),
            alerts=int(of_day.sum()),
            expected=float(self.predicted[of_day].sum()),
            hits=int(self.hit[of_day].sum()),
            flagged=int(self.flagged[of_day].sum()),
            flagged_hits=int((self.flagged & self.hit)[of_day].sum()),
        )


def list_calibration(table: ScoreTable, costs: ActionCosts | None) -> ListCalibration | None:
    """Monitor the calibration of lists throughout a backtest, in windows with fitted probabilities.

    All GPUs stay in service in a backtest, so all alerts have the same weight. None without
    probabilities.
    """
    if RANKED_BY not in table.scores or "probability" not in table.frame:
        return None
    ranking = DailyRankings.from_table(table, RANKED_BY)
    chosen = ranking.chosen(table.protocol.share, costs)
    if "calibrated" in table.frame:
        chosen &= table.frame["calibrated"].to_numpy(bool)[table.days.row]
    alerts, horizon = daily_list_alerts(table, chosen), table.protocol.horizon
    rank, size = _ranks(ranking, chosen, alerts)
    predicted = table.frame["probability"].to_numpy(float)[alerts.row]
    monitored = monitor_calibration(
        LabelledAlerts.from_sequences(predicted, alerts.hit, np.minimum(1.0, rank / size))
    )
    # Known at the time of a list: the alerts whose horizon was over.
    judged = np.searchsorted(alerts.raised_at, alerts.raised_at - horizon, side="right")
    length = np.array([monitored.length_after(n) for n in judged.tolist()], dtype=np.float64)
    flagged = rank <= np.ceil(length * size)
    return ListCalibration(monitored, alerts.raised_at, predicted, alerts.hit, flagged, horizon)


def _ranks(
    ranking: DailyRankings, chosen: BoolArray, alerts: DailyListAlerts
) -> tuple[Int64Array, Int64Array]:
    """Return the rank of each alert on its list, and the length of that list."""
    row, day = ranking.table.days.row[chosen], ranking.table.days.day[chosen]
    listed = zip(row.tolist(), day.tolist(), strict=True)
    rank_of = dict(zip(listed, ranking.rank[chosen].tolist(), strict=True))
    keys = zip(alerts.row.tolist(), alerts.raised_at.tolist(), strict=True)
    rank = np.array([rank_of[key] for key in keys], dtype=np.int64)
    days, sizes = np.unique(day, return_counts=True)
    return rank, sizes[np.searchsorted(days, alerts.raised_at)]


def _date(moment: int) -> str:
    return str(np.datetime64(moment, "ns").astype("datetime64[D]"))
