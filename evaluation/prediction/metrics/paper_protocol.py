"""Metrics on the paper's test sets: one positive to eight negatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.prediction.metrics.ranking_metrics import (
    accuracy,
    flag_precision,
    flag_recall,
)
from forewarn.evaluation.prediction.metrics.score_table import ENSEMBLES, ScoreTable
from forewarn.evaluation.prediction.metrics.window_average_precision import (
    average_precision_by_set,
    mean_draws,
    mean_or_none,
)
from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.time_units import DAY

__all__ = [
    "PaperMetrics",
    "WindowMetrics",
    "format_seconds",
    "paper_protocol",
    "precision_draws",
    "row_precision_draws",
]

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class WindowMetrics:
    """Metrics of one test window; None if nothing was flagged or failed."""

    start: str
    precision_at_k: float | None = None
    recall_at_k: float | None = None
    average_precision: float | None = None
    flagged: int = 0
    positives: int = 0
    train_length_days: float = 0.0


@dataclass(frozen=True, slots=True)
class PaperMetrics:
    """Metrics of one method: means over the test windows, None if undefined."""

    precision_at_k: float | None = None
    precision_at_k_interval: Interval | None = None
    recall_at_k: float | None = None
    accuracy: float | None = None
    average_precision: float | None = None
    average_precision_interval: Interval | None = None
    flagged: int = 0
    windows_without_flags: int = 0
    precision_variance: float | None = None
    precision_by_day: Sequence[float | None] = ()  # by day after a retraining
    windows: Sequence[WindowMetrics] = ()


def format_seconds(moment: int) -> str:
    """Format a time in seconds."""
    return f"{np.datetime64(moment, 'ns').astype('datetime64[s]')}Z"


def row_precision_draws(table: ScoreTable, flagged: Sequence[Int64Array]) -> Float64Array:
    """Return the precision of flagged rows, averaged over windows, for each bootstrap draw.

    Returns
    -------
    ndarray of shape (n_draws,)
        NaN if nothing flagged was drawn; empty if nothing is flagged.
    """
    flagged = [rows for rows in flagged if len(rows)]
    if not flagged:
        return np.zeros(0)
    draws = []
    for rows in flagged:
        weights = table.draws[:, table.machine[rows]]
        with np.errstate(invalid="ignore"):
            draws.append((weights * (table.labels[rows] == 1)).sum(axis=1) / weights.sum(axis=1))
    return mean_draws(np.stack(draws))


def precision_draws(table: ScoreTable, method: str) -> Float64Array:
    """Return a method's mean precision@K on the 1:8 sets for each bootstrap draw of machines.

    Returns
    -------
    ndarray of shape (n_draws,)
        Draws of two methods, or of two tables of the same machines, are paired. NaN if nothing
        flagged was drawn; empty if nothing is flagged.
    """
    sets = [rows[table.sampled[rows]] for _, rows in table.windows]
    return row_precision_draws(table, [rows[table.flags(method, rows)] for rows in sets])


def paper_protocol(table: ScoreTable, method: str) -> PaperMetrics:
    """Return the metrics of one method on the 1:8 test sets (arXiv 2201.11853)."""
    sets = [rows[table.sampled[rows]] for _, rows in table.windows]
    flags = [table.flags(method, rows) for rows in sets]
    precisions = [flag_precision(table.labels[r], f) for r, f in zip(sets, flags, strict=True)]
    recalls = [flag_recall(table.labels[r], f) for r, f in zip(sets, flags, strict=True)]
    averages = average_precision_by_set(table, method, sets)
    flagged = [rows[mask] for rows, mask in zip(sets, flags, strict=True)]
    known = [value for value in precisions if value is not None]
    return PaperMetrics(
        precision_at_k=mean_or_none(precisions),
        precision_at_k_interval=percentile_interval(row_precision_draws(table, flagged)),
        recall_at_k=mean_or_none(recalls),
        accuracy=mean_or_none([_accuracy(table, method, rows) for rows in sets]),
        average_precision=averages.mean,
        average_precision_interval=averages.interval,
        flagged=sum(map(len, flagged)),
        windows_without_flags=len(precisions) - len(known),
        precision_variance=float(np.var(known)) if known else None,
        precision_by_day=_precision_by_day(table, method, sets),
        windows=[
            WindowMetrics(
                start=format_seconds(start),
                precision_at_k=precision,
                recall_at_k=recall,
                average_precision=average,
                flagged=len(window_flagged),
                positives=int((table.labels[rows] == 1).sum()),
                train_length_days=float(table.frame["train_length_days"].iloc[rows[0]]),
            )
            for (start, _), rows, precision, recall, average, window_flagged in zip(
                table.windows, sets, precisions, recalls, averages.precisions, flagged, strict=True
            )
        ],
    )


def _accuracy(table: ScoreTable, method: str, rows: Int64Array) -> float | None:
    if method in ENSEMBLES:
        return None
    return accuracy(table.labels[rows], table.scores[method][rows], table.protocol.threshold)


def _precision_by_day(table: ScoreTable, method: str, sets: list[Int64Array]) -> list[float | None]:
    """Return the mean precision@K of the first, second, ... day after retraining."""
    by_day: dict[int, list[float | None]] = {}
    for (start, _), rows in zip(table.windows, sets, strict=True):
        day = (table.end[rows] - start) // DAY
        for number in np.unique(day).tolist():
            of_day = rows[day == number]
            if (table.labels[of_day] == 1).any():
                flags = table.flags(method, of_day)
                by_day.setdefault(number, []).append(flag_precision(table.labels[of_day], flags))
    return [mean_or_none(by_day.get(number, [])) for number in range(max(by_day, default=-1) + 1)]
