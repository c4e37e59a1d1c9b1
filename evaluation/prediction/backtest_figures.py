"""The figures of a backtest: a pure function of the tables of scores that it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from forewarn.evaluation.bootstrap import interval, machine_draws
from forewarn.evaluation.prediction.daily_list import Alerts, DayRows, raise_alerts
from forewarn.evaluation.prediction.ranking import (
    accuracy,
    average_precision,
    average_precision_draws,
    flag_precision,
    flag_recall,
)
from forewarn.models.prediction.calibration import calibration_slope, reliability
from forewarn.models.prediction.ensembles import Committee, top_k_count

__all__ = [
    "Comparison",
    "Protocol",
    "ScoreTable",
    "calibration_figures",
    "compare",
    "report_strategy",
]

DAY = 86_400_000_000_000
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
ENSEMBLES = ("parallel", "cascade")


@dataclass(frozen=True, slots=True)
class Protocol:
    """How scores are judged.

    Attributes
    ----------
    committee : Committee
    k : float
        Share of the sampled instances of a window that a method flags.
    threshold : float
        Score from which an instance counts as positive, for the accuracy.
    share : float
        Share of the fleet on a daily list.
    step, horizon : int
        Nanoseconds between two instances of a GPU, and after an instance.
    seed : int
    """

    committee: Committee
    k: float
    threshold: float
    share: float
    step: int
    horizon: int
    seed: int


@dataclass(frozen=True)
class ScoreTable:
    """A table of scores (docs/formats.md, section 3) as arrays, by test window, serial and end.

    Attributes
    ----------
    frame : DataFrame
    protocol : Protocol
    unseen_from : int or None
        First end of an instance that is not in the table since the records end within its horizon.
    """

    frame: pd.DataFrame
    protocol: Protocol
    unseen_from: int | None = None

    @cached_property
    def labels(self) -> npt.NDArray[np.int8]:
        """Labels of all rows."""
        return self.frame["label"].to_numpy(dtype=np.int8)

    @cached_property
    def scores(self) -> dict[str, Floats]:
        """Scores of all rows by name."""
        names = [name for name in self.frame.columns if name.startswith("score_")]
        return {name.removeprefix("score_"): self.frame[name].to_numpy(float) for name in names}

    @cached_property
    def window(self) -> Ints:
        """Start of the test window of each row."""
        return _nanoseconds(self.frame["test_window"])

    @cached_property
    def end(self) -> Ints:
        """End of each instance."""
        return _nanoseconds(self.frame["window_end"])

    @cached_property
    def gpu(self) -> Ints:
        """Number of each row's GPU, in the order of serials."""
        return np.unique(self.frame["gpu_serial"].astype(str), return_inverse=True)[1]

    @cached_property
    def machine(self) -> Ints:
        """Number of each row's machine, or GPU where machines are unknown."""
        if "machine_id" not in self.frame:
            return self.gpu
        return np.unique(self.frame["machine_id"].astype(str), return_inverse=True)[1]

    @cached_property
    def draws(self) -> Floats:
        """Draws of machines for intervals."""
        return machine_draws(int(self.machine.max()) + 1, seed=self.protocol.seed)

    @cached_property
    def windows(self) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Start and rows of every test window that has positives."""
        starts = np.unique(self.window)
        rows = [(int(start), np.flatnonzero(self.window == start)) for start in starts]
        return [(start, mine) for start, mine in rows if (self.labels[mine] == 1).any()]

    @cached_property
    def sampled(self) -> Flags:
        """Rows of the 1:8 test set."""
        return self.frame["sampled"].to_numpy(bool)

    @cached_property
    def fails_at(self) -> Floats:
        """When the GPU fails next; inf if not within the horizon.

        Exact to the nanosecond before it is rounded to a float: one failure has one moment, from
        whichever instance it is reckoned.
        """
        hours = self.frame["hours_to_failure"].to_numpy(float)
        there = np.isfinite(hours)
        ahead = np.round(np.where(there, hours, 0.0) * 3.6e12).astype(np.int64)
        return np.where(there, (self.end + ahead).astype(np.float64), np.inf)

    @cached_property
    def days(self) -> DayRows:
        """Who could be on which daily list."""
        return DayRows.of(
            self.gpu,
            self.end,
            self.fails_at,
            step=self.protocol.step,
            day=DAY,
            unseen_from=self.unseen_from,
        )

    @cached_property
    def failures(self) -> set[tuple[int, float]]:
        """The failures (GPU, time) that daily lists are judged by.

        One whose last list is left out is left out too: it would count with fewer chances.
        """
        positive = self.labels == 1
        if self.unseen_from is not None:
            last_list = (np.ceil(self.fails_at / DAY) - 1.0) * DAY
            positive &= last_list <= self.unseen_from
        return set(zip(self.gpu[positive].tolist(), self.fails_at[positive].tolist(), strict=True))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of all methods: every score, then the ensembles."""
        return (*self.scores, *ENSEMBLES)

    def flags(self, method: str, rows: Ints) -> Flags:
        """Return what a method flags among `rows`, one test set."""
        mine, order = self._taken(rows)
        return self.protocol.committee.flags(method, mine, self.protocol.k, order)

    def ranks(self, method: str, rows: Ints) -> Ints:
        """Return the rank of each of `rows` by a method; 1 is the most at risk."""
        return self.protocol.committee.ranks(method, *self._taken(rows))

    def _taken(self, rows: Ints) -> tuple[dict[str, Floats], Ints]:
        """Return the scores of `rows`, and their order by serial and end."""
        mine = {name: scores[rows] for name, scores in self.scores.items()}
        return mine, np.lexsort((self.end[rows], self.gpu[rows])).argsort()


def _nanoseconds(moments: pd.Series[Any]) -> Ints:
    return np.asarray(moments.dt.as_unit("ns").astype("int64"))


def _mean(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _iso(moment: int) -> str:
    return f"{np.datetime64(moment, 'ns').astype('datetime64[s]')}Z"


def _weighted_precision(table: ScoreTable, flagged: list[Ints]) -> tuple[float, float] | None:
    """Return the interval of the mean over windows of the precision of flagged rows."""
    draws = []
    for rows in flagged:
        weights = table.draws[:, table.machine[rows]]
        with np.errstate(invalid="ignore"):
            draws.append((weights * (table.labels[rows] == 1)).sum(axis=1) / weights.sum(axis=1))
    return interval(_mean_draws(draws)) if draws else None


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


def _paper_protocol(table: ScoreTable, method: str) -> dict[str, Any]:
    """Return the figures of one method on the 1:8 test sets (arXiv 2201.11853)."""
    sets = [rows[table.sampled[rows]] for _, rows in table.windows]
    flags = [table.flags(method, rows) for rows in sets]
    precisions = [flag_precision(table.labels[r], f) for r, f in zip(sets, flags, strict=True)]
    recalls = [flag_recall(table.labels[r], f) for r, f in zip(sets, flags, strict=True)]
    averages, average_interval = _average_precision(table, method, sets)
    flagged = [rows[mask] for rows, mask in zip(sets, flags, strict=True)]
    there = [value for value in precisions if value is not None]
    figures: dict[str, Any] = {
        "precision_at_k": _mean(precisions),
        "precision_at_k_interval": _weighted_precision(table, [r for r in flagged if len(r)]),
        "recall_at_k": _mean(recalls),
        "accuracy": _mean([_accuracy(table, method, rows) for rows in sets]),
        "average_precision": _mean(averages),
        "average_precision_interval": average_interval,
        "flagged": sum(map(len, flagged)),
        "windows_without_flags": len(precisions) - len(there),
        "precision_variance": float(np.var(there)) if there else None,
        "precision_by_day": _precision_by_day(table, method, sets),
    }
    figures["windows"] = [
        {
            "start": _iso(start),
            "precision_at_k": precision,
            "recall_at_k": recall,
            "average_precision": average,
            "flagged": len(mine),
            "positives": int((table.labels[rows] == 1).sum()),
            "train_length_days": float(table.frame["train_length_days"].iloc[rows[0]]),
        }
        for (start, _), rows, precision, recall, average, mine in zip(
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
            mine = rows[day == number]
            if (table.labels[mine] == 1).any():
                flags = table.flags(method, mine)
                by_day.setdefault(number, []).append(flag_precision(table.labels[mine], flags))
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
        mine = np.flatnonzero(days.day == moment)
        size = top_k_count(table.protocol.share, len(mine))
        listed.append(mine[table.ranks(method, days.row[mine]) <= size])
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
            "predicted": found.mean_probability,
            "observed": found.observed,
            "count": found.count,
            "positives": found.positives,
        }
        for found in reliability(probability, labels)
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
    there = np.isfinite(stacked)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(there, stacked, 0.0).sum(axis=0) / there.sum(axis=0)
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
        methods[method] = _paper_protocol(table, method)
        fleet[method] = _fleet_protocol(table, method, average)
        progress(method)
    return {"methods": methods, "fleet": fleet, "calibration": calibration_figures(table)}
