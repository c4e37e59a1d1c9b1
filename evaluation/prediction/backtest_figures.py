"""The figures of a backtest: a pure function of the tables of scores that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import interval
from forewarn.evaluation.prediction.calibration_figures import calibration_figures
from forewarn.evaluation.prediction.daily_list import Alerts, raise_alerts
from forewarn.evaluation.prediction.ranking import accuracy, flag_precision, flag_recall
from forewarn.evaluation.prediction.score_table import ENSEMBLES, ScoreTable
from forewarn.evaluation.prediction.window_averages import (
    WindowAverages,
    averages_of,
    known_mean,
    mean_draws,
    window_averages,
)
from forewarn.features.time_units import DAY
from forewarn.models.prediction.reliability import Judged

__all__ = [
    "Comparison",
    "compare",
    "paper_protocol",
    "precision_draws",
    "report_strategy",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


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
    return mean_draws(np.stack(draws))


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


def paper_protocol(table: ScoreTable, method: str) -> dict[str, Any]:
    """Return the figures of one method on the 1:8 test sets (arXiv 2201.11853)."""
    sets = [rows[table.sampled[rows]] for _, rows in table.windows]
    flags = [table.flags(method, rows) for rows in sets]
    precisions = [flag_precision(table.labels[r], f) for r, f in zip(sets, flags, strict=True)]
    recalls = [flag_recall(table.labels[r], f) for r, f in zip(sets, flags, strict=True)]
    averages = averages_of(table, method, sets)
    flagged = [rows[mask] for rows, mask in zip(sets, flags, strict=True)]
    known = [value for value in precisions if value is not None]
    figures: dict[str, Any] = {
        "precision_at_k": known_mean(precisions),
        "precision_at_k_interval": _weighted_precision(table, [r for r in flagged if len(r)]),
        "recall_at_k": known_mean(recalls),
        "accuracy": known_mean([_accuracy(table, method, rows) for rows in sets]),
        **averages.figures,
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
            table.windows, sets, precisions, recalls, averages.precisions, flagged, strict=True
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
    return [known_mean(by_day.get(number, [])) for number in range(max(by_day, default=-1) + 1)]


def _fleet_protocol(table: ScoreTable, method: str, average: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of one method's daily lists at true prevalence."""
    days = table.days
    listed = table.listed(method)
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
    averages = [averages_of(table, name, sets) for name in names]
    means = [known_mean(average.precisions) or 0.0 for average in averages]
    lists = [_fleet_protocol(table, name, {})["list_precision"] for name in names]
    draws = [mean_draws(average.draws) for average in averages]
    return Comparison(
        challenger=means[0],
        champion=means[1],
        difference=means[0] - means[1],
        interval=interval(draws[0] - draws[1]),
        list_precision=(lists[0], lists[1]),
        windows=len(sets),
    )


def report_strategy(
    table: ScoreTable,
    averages: Mapping[str, WindowAverages] | None = None,
    judged: Judged | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Mapping[str, Any]]:
    """Return `methods`, `fleet` and `calibration` of one strategy, by method.

    Parameters
    ----------
    table : ScoreTable
        Of all rows, or of those that are asked about (`ScoreTable.asked_about`).
    averages, judged : optional
        Of all rows, where the table lacks some (`window_averages`, `ScoreTable.judged`).
    progress : callable
        Called with the name of each method that is done.
    """
    averages = window_averages(table) if averages is None else averages
    methods, fleet = {}, {}
    for method in table.methods:
        methods[method] = paper_protocol(table, method)
        fleet[method] = _fleet_protocol(table, method, averages[method].figures)
        progress(method)
    calibration = calibration_figures(table.judged if judged is None else judged, table.draws)
    return {"methods": methods, "fleet": fleet, "calibration": calibration}
