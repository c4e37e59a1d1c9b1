"""Metrics of a backtest, computed from its score tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.prediction.metrics.calibration_metrics import (
    CalibrationMetrics,
    calibration_metrics,
)
from forewarn.evaluation.prediction.metrics.daily_list import raise_alerts
from forewarn.evaluation.prediction.metrics.intersection_worth import (
    IntersectionWorth,
    intersection_worth,
)
from forewarn.evaluation.prediction.metrics.member_worth import (
    BlendWorth,
    averages_without,
    blend_worth,
)
from forewarn.evaluation.prediction.metrics.paper_protocol import (
    Interval,
    PaperMetrics,
    format_seconds,
    paper_protocol,
    precision_draws,
    row_precision_draws,
)
from forewarn.evaluation.prediction.metrics.random_lists import RANDOM, RandomLists
from forewarn.evaluation.prediction.metrics.ranking_metrics import flag_precision
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.evaluation.prediction.metrics.window_average_precision import (
    WindowAveragePrecision,
    average_precision_by_set,
    mean_draws,
    mean_or_none,
    window_average_precision,
)
from forewarn.features.array_types import Float64Array
from forewarn.features.time_units import HOUR
from forewarn.models.prediction.reliability import Judged

__all__ = [
    "ChampionComparison",
    "ComparedLists",
    "DayMetrics",
    "FleetMetrics",
    "LeadTime",
    "StrategyMetrics",
    "compare_with_champion",
    "strategy_metrics",
]


@dataclass(frozen=True, slots=True)
class DayMetrics:
    """One daily list: number of listed GPUs, and how many of them failed within the horizon.

    The hits of a random list are expected ones and need not be an integer.
    """

    date: str
    listed: int
    hits: float


@dataclass(frozen=True, slots=True)
class LeadTime:
    """Quantiles of the hours from an alert to its failure; None if no failure was caught."""

    p10: float | None = None
    p50: float | None = None


@dataclass(frozen=True, slots=True)
class FleetMetrics:
    """Metrics of one method's daily lists at true prevalence; None if undefined.

    Those of random lists are expected values, except for the average precision.
    """

    list_precision: float | None = None
    list_precision_interval: Interval | None = None
    failures_caught: float = 0
    failures: int = 0
    failures_caught_share: float | None = None
    lead_time_hours: LeadTime = field(default_factory=LeadTime)
    alerts: float = 0
    alerts_per_failure_caught: float | None = None
    average_precision: float | None = None
    average_precision_interval: Interval | None = None
    days: Sequence[DayMetrics] = ()


@dataclass(frozen=True, slots=True)
class StrategyMetrics:
    """Metrics of one strategy: by method on both protocols, and probability calibration.

    Attributes
    ----------
    methods : mapping of str to PaperMetrics
    fleet : mapping of str to FleetMetrics
    calibration : CalibrationMetrics
    blend : BlendWorth or None
    intersection : IntersectionWorth or None
    draws : mapping of str to mapping of ndarray of shape (n_draws,)
        `precision_at_k`, `list_precision` and `average_precision` (at true prevalence) by method,
        for the same bootstrap draws of machines.
    """

    methods: Mapping[str, PaperMetrics]
    fleet: Mapping[str, FleetMetrics]
    calibration: CalibrationMetrics
    blend: BlendWorth | None
    intersection: IntersectionWorth | None
    draws: Mapping[str, Mapping[str, Float64Array]] = field(compare=False)


def _fleet_protocol(
    table: ScoreTable, method: str, averages: WindowAveragePrecision
) -> FleetMetrics:
    """Return the metrics of one method's daily lists at true prevalence."""
    days = table.days
    listed = table.listed(method)
    rows, moments = days.row[listed], days.day[listed]
    alerts = raise_alerts(
        table.gpu[rows], moments, table.fails_at[rows], horizon=table.protocol.horizon
    )
    failures = table.failures
    leads = [lead / HOUR for failed, lead in alerts.caught().items() if failed in failures]
    caught = len(leads)
    return FleetMetrics(
        list_precision=flag_precision(table.labels[rows], np.ones(len(rows), dtype=bool)),
        list_precision_interval=percentile_interval(row_precision_draws(table, [rows])),
        failures_caught=caught,
        failures=len(failures),
        failures_caught_share=caught / len(failures) if failures else None,
        lead_time_hours=LeadTime(
            p10=float(np.quantile(leads, 0.1)) if leads else None,
            p50=float(np.quantile(leads, 0.5)) if leads else None,
        ),
        alerts=len(alerts.gpu),
        alerts_per_failure_caught=len(alerts.gpu) / caught if caught else None,
        average_precision=averages.mean,
        average_precision_interval=averages.interval,
        days=[
            DayMetrics(
                date=format_seconds(moment)[:10],
                listed=int((moments == moment).sum()),
                hits=int((table.labels[rows[moments == moment]] == 1).sum()),
            )
            for moment in np.unique(days.day).tolist()
        ],
    )


def _expected_fleet_metrics(table: ScoreTable, averages: WindowAveragePrecision) -> FleetMetrics:
    """Return the expected metrics of random daily lists; the lead time is left out."""
    lists, n_failures = RandomLists.from_table(table), len(table.failures)
    caught, n_alerts = lists.caught, float(lists.alerts.sum())
    return FleetMetrics(
        list_precision=lists.precision,
        list_precision_interval=lists.interval,
        failures_caught=caught,
        failures=n_failures,
        failures_caught_share=caught / n_failures if n_failures else None,
        alerts=n_alerts,
        alerts_per_failure_caught=n_alerts / caught if caught else None,
        average_precision=averages.mean,
        average_precision_interval=averages.interval,
        days=[
            DayMetrics(format_seconds(moment)[:10], listed, hits)
            for moment, listed, hits in zip(
                lists.moments.tolist(), lists.length.tolist(), lists.hits.tolist(), strict=True
            )
        ],
    )


@dataclass(frozen=True, slots=True)
class ChampionComparison:
    """Scores of a challenger and a champion on the same windows, at true prevalence.

    Attributes
    ----------
    challenger, champion : float
        Average precision, mean over windows.
    difference : float
    interval : tuple of float or None
        Bootstrap interval of the difference, resampling machines.
    list_precision : tuple of (float or None, float or None)
        Precision of the daily lists of the challenger and the champion.
    windows : int
    by_rules : bool
        There was no champion; the built-in rules take its place.
    """

    challenger: float
    champion: float
    difference: float
    interval: tuple[float, float] | None
    list_precision: tuple[float | None, float | None]
    windows: int
    by_rules: bool = False


class ComparedLists(NamedTuple):
    """The comparison with a champion, and the metrics of the lists of both."""

    comparison: ChampionComparison
    challenger: FleetMetrics
    champion: FleetMetrics


def compare_with_champion(table: ScoreTable, *, by_rules: bool = False) -> ComparedLists | None:
    """Compare `score_challenger` with `score_champion`; None without a window with positives."""
    if not table.windows:
        return None
    names = ("challenger", "champion")
    sets = [rows for _, rows in table.windows]
    averages = [average_precision_by_set(table, name, sets) for name in names]
    means = [mean_or_none(average.precisions) or 0.0 for average in averages]
    lists = [
        _fleet_protocol(table, name, average) for name, average in zip(names, averages, strict=True)
    ]
    draws = [mean_draws(average.draws) for average in averages]
    comparison = ChampionComparison(
        challenger=means[0],
        champion=means[1],
        difference=means[0] - means[1],
        interval=percentile_interval(draws[0] - draws[1]),
        list_precision=(lists[0].list_precision, lists[1].list_precision),
        windows=len(sets),
        by_rules=by_rules,
    )
    return ComparedLists(comparison, *lists)


def strategy_metrics(
    table: ScoreTable,
    averages: Mapping[str, WindowAveragePrecision] | None = None,
    judged: Judged | None = None,
    without: Mapping[str, WindowAveragePrecision] | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> StrategyMetrics:
    """Return the metrics of one strategy.

    Parameters
    ----------
    table : ScoreTable
        All rows, or the rows that test sets and lists need (`ScoreTable.evaluated_rows`).
    averages, judged, without : optional
        Results on all rows, if the table lacks some (`window_average_precision`,
        `ScoreTable.judged`, `averages_without`).
    progress : callable
        Called with the name of each completed method.
    """
    averages = window_average_precision(table) if averages is None else averages
    without = averages_without(table) if without is None else without
    methods, fleet = {}, {}
    for method in table.methods:
        methods[method] = paper_protocol(table, method)
        fleet[method] = (
            _expected_fleet_metrics(table, averages[method])
            if method == RANDOM
            else _fleet_protocol(table, method, averages[method])
        )
        progress(method)
    calibration = calibration_metrics(table.judged if judged is None else judged, table.draws)
    draws = {
        "precision_at_k": {name: precision_draws(table, name) for name in table.methods},
        "list_precision": {name: _list_precision_draws(table, name) for name in table.methods},
        "average_precision": {
            name: mean_draws(average.draws) if len(average.draws) else np.zeros(0)
            for name, average in averages.items()
        },
    }
    worth = blend_worth(table.protocol.committee.votes, averages, without)
    return StrategyMetrics(methods, fleet, calibration, worth, intersection_worth(table), draws)


def _list_precision_draws(table: ScoreTable, method: str) -> Float64Array:
    """Return the precision of a method's daily lists for each bootstrap draw of machines."""
    if method == RANDOM:
        return RandomLists.from_table(table).precision_draws(table.draws)
    return row_precision_draws(table, [table.days.row[table.listed(method)]])
