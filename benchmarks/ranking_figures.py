"""What the studies of the ranking print: average precision, list precision and slope, with draws.

Average precision is that of each test window, weighed by its failing instances, at true prevalence;
a list is the configured share of the newest instances of a day (of a step, if that is longer).
Slopes of calibration are those of all windows but the first (`fitted_chances`). Brackets resample
machines; differences are paired, to the first row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.fitted_chances import fitted_chances
from benchmarks.measured_fleet import Floats, Ints, Study, Window

from forewarn.evaluation.bootstrap import interval, machine_draws
from forewarn.evaluation.prediction.figures.ranking import average_precision_draws
from forewarn.features.time_units import DAY
from forewarn.models.prediction.reliability import calibration_slope, slope_draws

__all__ = ["Figures", "bracketed", "mean_tables", "print_table"]

_ARRAYS = ("average", "precision", "slope")


def _listed(study: Study, window: Window, scores: Floats) -> Ints:
    """Return the rows that are on the lists of a window, the newest of each GPU ranked.

    Equal scores are listed in an order drawn by hash, or one machine would be on all lists.
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
    rows_listed: Ints = window.tested[np.concatenate(listed)]
    return rows_listed


def _machine_draws(study: Study) -> Floats:
    """Return how often each machine is drawn; the first draw holds each of them once."""
    n_machines = int(study.machine.max()) + 1
    return np.vstack([np.ones(n_machines), machine_draws(n_machines, seed=5)])


def _average_draws(study: Study, scores: Sequence[Floats], draws: Floats) -> Floats:
    """Return the average precision of the test windows, weighed by failing instances."""
    labels, machine = study.instances.label, study.machine
    averages, failing = [], []
    for window, of_window in zip(study.windows, scores, strict=True):
        rows = window.tested
        averages.append(average_precision_draws(labels[rows], of_window, machine[rows], draws))
        failing.append(draws[:, machine[rows[labels[rows] == 1]]].sum(axis=1))
    weights = np.array(failing)
    with np.errstate(invalid="ignore"):  # a draw without a failing machine
        averaged: Floats = np.nansum(np.array(averages) * weights, axis=0) / weights.sum(axis=0)
    return averaged


def _slope(study: Study, scores: Sequence[Floats], draws: Floats) -> Floats:
    judged = fitted_chances(study, scores)
    return slope_draws(judged, calibration_slope(judged), draws)


@dataclass(frozen=True)
class Figures:
    """Average precision, list precision and slope of every draw of machines, the whole first."""

    average: Floats
    precision: Floats
    slope: Floats

    @classmethod
    def of(cls, study: Study, scores: Sequence[Floats], *, chances: bool) -> Figures:
        """Judge the scores of every window; with `chances` they are log odds."""
        draws, machine = _machine_draws(study), study.machine
        pairs = zip(study.windows, scores, strict=True)
        rows = np.concatenate([_listed(study, window, of_window) for window, of_window in pairs])
        drawn = draws[:, machine[rows]]
        hits = drawn @ (study.instances.label[rows] == 1)
        precision = hits / np.maximum(drawn.sum(axis=1), 1.0)
        slope = _slope(study, scores, draws) if chances else np.full(len(draws), np.nan)
        return cls(_average_draws(study, scores, draws), precision, slope)


def mean_tables(tables: Sequence[Mapping[str, Figures]]) -> dict[str, Figures]:
    """Return the mean of some fleets, row by row and draw by draw."""
    return {
        name: Figures(
            *(np.mean([getattr(table[name], a) for table in tables], axis=0) for a in _ARRAYS)
        )
        for name in tables[0]
    }


def bracketed(draws: Floats, factor: float = 1.0, digits: int = 3) -> str:
    """Return the value of the first draw, and the interval of the others; empty for NaN."""
    if not np.isfinite(draws[0]):
        return ""
    low, high = interval(draws[1:] * factor) or (np.nan, np.nan)
    return f"{draws[0] * factor:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def print_table(title: str, table: Mapping[str, Figures]) -> None:
    """Print a row for each name; differences are to the first."""
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
