"""The figures of a backtest: a pure function of the tables of scores that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import interval
from forewarn.evaluation.prediction.daily_list import Alerts, DayRows, raise_alerts
from forewarn.evaluation.prediction.ranking import (
    accuracy,
    average_precision,
    average_precision_draws,
    flag_precision,
    flag_recall,
)
from forewarn.evaluation.prediction.score_table import ENSEMBLES, ScoreTable
from forewarn.features.time_units import DAY
from forewarn.models.prediction.calibration import calibration_slope, reliability
from forewarn.models.prediction.ensembles import top_k_count

__all__ = [
    "Comparison",
    "calibration_figures",
    "compare",
    "paper_protocol",
    "precision_draws",
    "report_strategy",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _iso(moment: int) -> str:
    return f"{np.datetime64(moment, 'ns').astype('datetime64[s]')}Z"


def _weighted_precision(table: ScoreTable, flagged: list[Ints]) -> tuple[float, float] | None:
    """Return the interval of the mean over windows of the precision of flagged rows."""
    return interval(_precision_draws(table, flagged)) if flagged else None


def _precision_draws(table: ScoreTable, flagged: list[Ints]) -> Floats:
    draws = []
    for rows in flagged:
        weights = table.draws[:, table.machine[rows]]
        with np.errstate(invalid="ignore"):
            draws.append((weights * (table.labels[rows] == 1)).sum(axis=1) / weights.sum(axis=1))
    return _mean_draws(draws)


def precision_draws(table: ScoreTable, method: str) -> Floats:
    """Return a method's precision@K on the 1:8 sets, mean over windows, of each draw of machines.

    Returns
    -------
    ndarray of shape (n_draws,)
        Of two methods, or of two tables of the same machines, in pairs; NaN where nothing that is
        flagged was drawn. Empty if nothing is flagged at all.
    """
    sets = [rows[table.sampled[rows]] for _, rows in table.windows]
    flagged = [rows[table.flags(method, rows)] for rows in sets]
    flagged = [rows for rows in flagged if len(rows)]
    return _precision_draws(table, flagged) if flagged else np.zeros(0)


def _average_precision(
    table: ScoreTable, method: str, sets: list[Ints]
) -> tuple[list[float | None], tuple[float, float] | None]:
    """Return the average precision of each set of rows, and the interval of their mean."""
    if method in ENSEMBLES:
        return [None] * len(sets), None
    scores = table.scores[method]
    values = [average_precision(table.labels[rows], scores[rows]) for rows in sets]
    draws = [_draws(table, method, rows) for rows in sets]
    return values, interval(_mean_draws(draws)) if draws else None


def paper_protocol(table: ScoreTable, method: str) -> dict[str, Any]:
    """Return the figures of one method on the 1:8 test sets (arXiv 2201.11853)."""
    sets = [rows[table.sampled[rows]] for _, rows in table.windows]
    flags = [table.flags(method, rows) for rows in sets]
    precisions = [flag_precision(table.labels[r], f) for r, f in zip(sets, flags, strict=True)]
    recalls = [flag_recall(table.labels[r], f) for r, f in zip(sets, flags, strict=True)]
    averages, average_interval = _average_precision(table, method, sets)
    flagged = [rows[mask] for rows, mask in zip(sets, flags, strict=True)]
    known = [value for value in precisions if value is not None]
    figures: dict[str, Any] = {
        "precision_at_k": _mean(precisions),
        "precision_at_k_interval": _weighted_precision(table, [r for r in flagged if len(r)]),
        "recall_at_k": _mean(recalls),
        "accuracy": _mean([_accuracy(table, method, rows) for rows in sets]),
        "average_precision": _mean(averages),
        "average_precision_interval": average_interval,
        "flagged": sum(map(len, flagged)),
        "windows_without_flags": len(precisions) - len(known),
        "precision_variance": float(np.var(known)) if known else None,
        "precision_by_day": _precision_by_day(table, method, sets),
    }
    figures["windows"] = [
        {
            "start": _iso(start),
            "precision_at_k": precision,
            "recall_at_k": recall,
            "average_precision": average,
            "flagged": len(window_flagged),
            "positives": int((table.labels[rows] == 1).sum()),
            "train_length_days": float(table.frame["train_length_days"].iloc[rows[0]]),
        }
        for (start, _), rows, precision, recall, average, window_flagged in zip(
            table.windows, sets, precisions, recalls, averages, flagged, strict=True
        )
    ]
    return figures


def _accuracy(table: ScoreTable, method: str, rows: Ints) -> float | None:
    if method in ENSEMBLES:
        return None
    return accuracy(table.labels[rows], table.scores[method][rows], table.protocol.threshold)


def _precision_by_day(table: ScoreTable, method: str, sets: list[Ints]) -> list[float | None]:
    """Return the mean Precision@K of the first, second, ... day after retraining."""
    by_day: dict[int, list[float | None]] = {}
    for (start, _), rows in zip(table.windows, sets, strict=True):
        day = (table.end[rows] - start) // DAY
        for number in np.unique(day).tolist():
            of_day = rows[day == number]
            if (table.labels[of_day] == 1).any():
                flags = table.flags(method, of_day)
                by_day.setdefault(number, []).append(flag_precision(table.labels[of_day], flags))
    return [_mean(by_day.get(number, [])) for number in range(max(by_day, default=-1) + 1)]


def _fleet_protocol(table: ScoreTable, method: str, average: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one method's daily lists at true prevalence."""
    days = table.days
    listed = _listed(table, method, days)
    rows, moments = days.row[listed], days.day[listed]
    alerts = raise_alerts(
        table.gpu[rows], moments, table.fails_at[rows], horizon=table.protocol.horizon
    )
    return {
        "list_precision": flag_precision(table.labels[rows], np.ones(len(rows), dtype=bool)),
        "list_precision_interval": _weighted_precision(table, [rows] if len(rows) else []),
        **_alert_figures(table, alerts),
        **average,
        "days": [
            {
                "date": _iso(moment)[:10],
                "listed": int((moments == moment).sum()),
                "hits": int((table.labels[rows[moments == moment]] == 1).sum()),
            }
            for moment in np.unique(days.day).tolist()
        ],
    }


def _listed(table: ScoreTable, method: str, days: DayRows) -> Ints:
    """Return which of the day rows are on the lists, in order of time."""
    listed = []
    for moment in np.unique(days.day).tolist():
        of_day = np.flatnonzero(days.day == moment)
        size = top_k_count(table.protocol.share, len(of_day))
        listed.append(of_day[table.ranks(method, days.row[of_day]) <= size])
    return np.concatenate(listed) if listed else np.zeros(0, dtype=np.int64)


def _alert_figures(table: ScoreTable, alerts: Alerts) -> dict[str, Any]:
    failures = table.failures
    leads = [lead / 3.6e12 for failed, lead in alerts.caught().items() if failed in failures]
    caught = len(leads)
    return {
        "failures_caught": caught,
        "failures": len(failures),
        "failures_caught_share": caught / len(failures) if failures else None,
        "lead_time_hours": {
            "p10": float(np.quantile(leads, 0.1)) if leads else None,
            "p50": float(np.quantile(leads, 0.5)) if leads else None,
        },
        "alerts": len(alerts.gpu),
        "alerts_per_failure_caught": len(alerts.gpu) / caught if caught else None,
    }


def calibration_figures(table: ScoreTable) -> dict[str, Any]:
    """Return how the probabilities compare with what happened, at true prevalence.

    Only those of windows before which another was finished: the others are not fitted yet.
    """
    fitted = np.ones(len(table.frame), dtype=bool)
    if "probability" not in table.frame:
        return {"slope": None, "intercept": None, "bins": []}
    if "calibrated" in table.frame:
        fitted = table.frame["calibrated"].to_numpy(bool)
    probability = table.frame["probability"].to_numpy(float)[fitted]
    labels = table.labels[fitted]
    bins = [
        {
            "predicted": group.mean_probability,
            "observed": group.observed,
            "count": group.count,
            "positives": group.positives,
        }
        for group in reliability(probability, labels)
    ]
    if len(np.unique(labels)) < 2 or np.ptp(probability) == 0:
        return {"slope": None, "intercept": None, "bins": bins}
    slope, intercept = calibration_slope(probability, labels)
    return {"slope": slope, "intercept": intercept, "bins": bins}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A challenger's scores and a champion's on the same windows, at true prevalence.

    Attributes
    ----------
    challenger, champion : float
        Average precision, mean over windows.
    difference : float
    interval : tuple of float or None
        Of the difference, machines resampled.
    list_precision : tuple of (float or None, float or None)
        Of the challenger's and the champion's daily lists.
    windows : int
    """

    challenger: float
    champion: float
    difference: float
    interval: tuple[float, float] | None
    list_precision: tuple[float | None, float | None]
    windows: int


def compare(table: ScoreTable) -> Comparison | None:
    """Compare `score_challenger` with `score_champion`; None without a window with positives."""
    if not table.windows:
        return None
    names = ("challenger", "champion")
    sets = [rows for _, rows in table.windows]
    means = [_mean(_average_precision(table, name, sets)[0]) or 0.0 for name in names]
    lists = [_fleet_protocol(table, name, {})["list_precision"] for name in names]
    draws = [_mean_draws([_draws(table, name, rows) for rows in sets]) for name in names]
    return Comparison(
        challenger=means[0],
        champion=means[1],
        difference=means[0] - means[1],
        interval=interval(draws[0] - draws[1]),
        list_precision=(lists[0], lists[1]),
        windows=len(sets),
    )


def _mean_draws(draws: list[Floats]) -> Floats:
    """Return the mean over windows of each draw of machines, without those that have no value."""
    stacked = np.stack(draws)
    finite = np.isfinite(stacked)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(finite, stacked, 0.0).sum(axis=0) / finite.sum(axis=0)
    return mean


def _draws(table: ScoreTable, method: str, rows: Ints) -> Floats:
    scores = table.scores[method][rows]
    return average_precision_draws(table.labels[rows], scores, table.machine[rows], table.draws)


def report_strategy(
    table: ScoreTable, *, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Mapping[str, Any]]:
    """Return `methods`, `fleet` and `calibration` of one strategy, by method.

    Parameters
    ----------
    table : ScoreTable
    progress : callable
        Called with the name of each method that is done.
    """
    everything = [rows for _, rows in table.windows]
    methods, fleet = {}, {}
    for method in table.methods:
        averages, bounds = _average_precision(table, method, everything)
        average = {"average_precision": _mean(averages), "average_precision_interval": bounds}
        methods[method] = paper_protocol(table, method)
        fleet[method] = _fleet_protocol(table, method, average)
        progress(method)
    return {"methods": methods, "fleet": fleet, "calibration": calibration_figures(table)}
