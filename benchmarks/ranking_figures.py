"""Metrics of the ranking studies: average precision, list precision and slope, with intervals.

Average precision is computed per test window at true prevalence, weighted by failing instances. A
list is the configured share of the newest instances of a day (of a step, if that is longer).
Calibration slopes are those of all windows but the first (`calibrated_probabilities`). Brackets are
bootstrap intervals over machines; differences are paired with the first row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.calibrated_probabilities import calibrate_scores
from benchmarks.measured_fleet import Study, Window

from forewarn.evaluation.bootstrap import bootstrap_weights, percentile_interval
from forewarn.evaluation.prediction.metrics.ranking_metrics import average_precision_draws
from forewarn.features.array_types import Float64Array, Int64Array
from forewarn.features.time_units import DAY
from forewarn.models.prediction.reliability import calibration_slope, slope_draws

__all__ = ["RankingFigures", "bracketed", "mean_tables", "print_table"]

_ARRAYS = ("average", "precision", "slope")


def _listed(study: Study, window: Window, scores: Float64Array) -> Int64Array:
    """Return the rows on the lists of a window, ranked by the newest instance of each GPU.

    Ties are ordered by hash; otherwise one machine would be on all lists.
    """
    gpu, end = study.instances.gpu[window.tested], study.instances.end[window.tested]
    day = (end - window.moment) // max(DAY, study.recipe.step)
    listed = []
    for number in np.unique(day):
        rows = np.flatnonzero(day == number)
        rows = rows[np.lexsort((end[rows], gpu[rows]))]
        rows = rows[np.append(np.diff(gpu[rows]) != 0, True)]
        best = np.lexsort((study.hashes[window.tested[rows]], -scores[rows]))
        listed.append(rows[best[: max(1, round(study.share * len(rows)))]])
    rows_listed: Int64Array = window.tested[np.concatenate(listed)]
    return rows_listed


def _machine_draws(study: Study) -> Float64Array:
    """Return how often each machine is drawn; the first draw holds each machine once."""
    n_machines = int(study.machine.max()) + 1
    return np.vstack([np.ones(n_machines), bootstrap_weights(n_machines, seed=5)])


def _average_draws(
    study: Study, scores: Sequence[Float64Array], draws: Float64Array
) -> Float64Array:
    """Return the average precision of the test windows, weighted by failing instances."""
    labels, machine = study.instances.label, study.machine
    averages, failing = [], []
    for window, of_window in zip(study.windows, scores, strict=True):
        rows = window.tested
        averages.append(average_precision_draws(labels[rows], of_window, machine[rows], draws))
        failing.append(draws[:, machine[rows[labels[rows] == 1]]].sum(axis=1))
    weights = np.array(failing)
    with np.errstate(invalid="ignore"):  # a draw without a failing machine
        averaged: Float64Array = np.nansum(np.array(averages) * weights, axis=0) / weights.sum(
            axis=0
        )
    return averaged


def _slope(study: Study, scores: Sequence[Float64Array], draws: Float64Array) -> Float64Array:
    judged = calibrate_scores(study, scores)
    return slope_draws(judged, calibration_slope(judged), draws)


@dataclass(frozen=True)
class RankingFigures:
    """Average precision, list precision and slope per bootstrap draw; the first is the sample."""

    average: Float64Array
    precision: Float64Array
    slope: Float64Array

    @classmethod
    def from_scores(
        cls, study: Study, scores: Sequence[Float64Array], *, are_log_odds: bool
    ) -> RankingFigures:
        """Evaluate the scores of every window; `are_log_odds` also gives a calibration slope."""
        draws, machine = _machine_draws(study), study.machine
        pairs = zip(study.windows, scores, strict=True)
        rows = np.concatenate([_listed(study, window, of_window) for window, of_window in pairs])
        drawn = draws[:, machine[rows]]
        hits = drawn @ (study.instances.label[rows] == 1)
        precision = hits / np.maximum(drawn.sum(axis=1), 1.0)
        slope = _slope(study, scores, draws) if are_log_odds else np.full(len(draws), np.nan)
        return cls(_average_draws(study, scores, draws), precision, slope)


def mean_tables(tables: Sequence[Mapping[str, RankingFigures]]) -> dict[str, RankingFigures]:
    """Return the mean over some fleets, by row and draw."""
    return {
        name: RankingFigures(
            *(np.mean([getattr(table[name], a) for table in tables], axis=0) for a in _ARRAYS)
        )
        for name in tables[0]
    }


def bracketed(draws: Float64Array, factor: float = 1.0, digits: int = 3) -> str:
    """Format the value of the first draw with the interval of the others; empty for NaN."""
    if not np.isfinite(draws[0]):
        return ""
    low, high = percentile_interval(draws[1:] * factor) or (np.nan, np.nan)
    return f"{draws[0] * factor:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def print_table(title: str, table: Mapping[str, RankingFigures]) -> None:
    """Print a row for each name; differences are to the first row."""
    print(f"\n{title}\n| | average precision | list precision, % | against the first | | slope |")
    print("|---|---|---|---|---|---|")
    before = next(iter(table.values()))
    for name, row in table.items():
        gain = row.average - before.average, row.precision - before.precision
        texts = [
            text
            for average, precision in ((row.average, row.precision), gain)
            for text in (bracketed(average), bracketed(precision, 100, 1))
        ]
        print(f"| {name} | {' | '.join(texts)} | {bracketed(row.slope, 1, 2)} |", flush=True)
