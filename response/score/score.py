"""The score: what acting has brought, and what of that nobody can know."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.score.alert import Alert
from forewarn.response.score.resampling import Figure, Resampling, figure, ratio
from forewarn.response.state.incident import Outcome
from forewarn.response.state.settings import MINUTE

__all__ = ["ENOUGH_ALERTS", "Costs", "Failure", "Score", "score"]

ENOUGH_ALERTS = 60
"""So many judged alerts tell a precision of 20 % from one of 10 %.

More than 10 of 60 speak for 20 %: at 10 % that happens in 3 of 100 cases, at 20 % in 2 of 3.
"""
_UNKNOWN = "no alert was left alone and judged, so nobody can know: set `control` above 0"
_SHORT = Nanoseconds(10 * MINUTE)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Costs:
    """What a stop of a job costs, each in nanoseconds; `checkpoint` is the time between two."""

    detection: Nanoseconds = _SHORT
    scheduling: Nanoseconds = _SHORT
    start: Nanoseconds = _SHORT
    checkpoint: Nanoseconds = HOUR
    planned_restart: Nanoseconds = _SHORT

    @property
    def hours_saved(self) -> float:
        """Hours that each GPU of a job gains where a stop is planned; below 0 where it loses."""
        unplanned = self.detection + self.scheduling + self.start + self.checkpoint / 2
        return (unplanned - self.planned_restart) / HOUR


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that is known; `at` is in nanoseconds since 1970 UTC."""

    machine: str
    at: Nanoseconds
    gpu_serial: str | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """What acting has brought.

    Attributes
    ----------
    precision : Figure
        Share of would-be drains by prediction that a failure followed, by those left alone.
    apparent_precision : Figure
        The share that was confirmed of those that were drained: what acting makes believe.
    left_alone, judged : int
        Alerts that were left alone by chance, and those of them whose outcome is known.
    days_to_answer : float or None
        Until enough are judged to tell 20 % from 10 %. 0: enough already, None: never so.
    failures, missed : int
        All, and those that no finding announced.
    missed_share : Figure
    minutes_to_isolation : Figure
        Median, from the first finding to a machine that takes no more jobs.
    gpu_hours_saved, gpu_hours_isolated, gpu_hours_net : Figure
        By predictions alone.
    """

    precision: Figure
    apparent_precision: Figure
    left_alone: int
    judged: int
    days_to_answer: float | None
    failures: int
    missed: int
    missed_share: Figure
    minutes_to_isolation: Figure
    gpu_hours_saved: Figure
    gpu_hours_isolated: Figure
    gpu_hours_net: Figure


def score(
    alerts: Sequence[Alert],
    failures: Sequence[Failure],
    *,
    costs: Costs,
    since: Nanoseconds,
    now: Nanoseconds,
    n_machines: int = 0,
    seed: int = 0,
) -> Score:
    """Return what acting has brought between two moments, with intervals by machines.

    Parameters
    ----------
    alerts : sequence of Alert
        Those noticed from `since` on.
    failures : sequence of Failure
        Those from `since` on that are known.
    costs : Costs
    since, now : int
        Nanoseconds since 1970 UTC.
    n_machines : int
        Of the fleet; those without an alert or a failure are drawn, too.
    seed : int
        Of the draws.
    """
    names = [alert.machine for alert in alerts] + [failure.machine for failure in failures]
    resampling = Resampling(names, size=n_machines, seed=seed)
    left = [alert for alert in alerts if alert.left_alone is not None]
    judged = [alert for alert in left if alert.outcome in _JUDGED]
    saved = _hours_saved(alerts, judged, costs, resampling)
    isolated = _hours_isolated(alerts, now, resampling)
    by_machine = _by_machine(alerts)
    missed = [f for f in failures if not _announced(f, by_machine.get(f.machine, ()))]
    return Score(
        precision=figure(_precision(judged, resampling), _UNKNOWN),
        apparent_precision=_apparent(alerts, resampling),
        left_alone=len(left),
        judged=len(judged),
        days_to_answer=_days_to_answer(len(left), len(judged), (now - since) / DAY),
        failures=len(failures),
        missed=len(missed),
        missed_share=_missed_share(missed, failures, resampling),
        minutes_to_isolation=_minutes(alerts, resampling),
        gpu_hours_saved=figure(saved, _UNKNOWN),
        gpu_hours_isolated=figure(isolated),
        gpu_hours_net=figure(saved - isolated, _UNKNOWN),
    )


_JUDGED = frozenset({Outcome.CONFIRMED, Outcome.NOT_CONFIRMED})


def _machines(alerts: Sequence[Alert]) -> list[str]:
    return [alert.machine for alert in alerts]


# --- precision ------------------------------------------------------------------------------------


def _chances(judged: Sequence[Alert], resampling: Resampling) -> Floats:
    """Return the weight of each judged alert: what was left alone rarely stands for many."""
    inverse = np.array([1.0 / (alert.left_alone or 1.0) for alert in judged])
    chances: Floats = resampling.weights(_machines(judged)) * inverse
    return chances


def _precision(judged: Sequence[Alert], resampling: Resampling) -> Floats:
    chances = _chances(judged, resampling)
    confirmed = np.array([alert.outcome is Outcome.CONFIRMED for alert in judged], dtype=bool)
    return ratio(chances[:, confirmed].sum(axis=1), chances.sum(axis=1))


def _apparent(alerts: Sequence[Alert], resampling: Resampling) -> Figure:
    drained = [a for a in alerts if a.predicted and a.isolated_at is not None and a.outcome]
    weights = resampling.weights(_machines(drained))
    confirmed = np.array([alert.outcome is Outcome.CONFIRMED for alert in drained], dtype=bool)
    shares = ratio(weights[:, confirmed].sum(axis=1), weights.sum(axis=1))
    return figure(shares, "nothing that was drained for a prediction is over")


def _days_to_answer(left_alone: int, judged: int, days: float) -> float | None:
    """Return the days until enough alerts are judged, at the rate of those left alone so far."""
    if judged >= ENOUGH_ALERTS:
        return 0.0
    rate = (judged or left_alone) / days if days > 0 else 0.0
    return (ENOUGH_ALERTS - judged) / rate if rate else None


# --- failures and minutes -------------------------------------------------------------------------


def _by_machine(alerts: Sequence[Alert]) -> dict[str, list[Alert]]:
    groups: dict[str, list[Alert]] = defaultdict(list)
    for alert in alerts:
        groups[alert.machine].append(alert)
    return groups


def _announced(failure: Failure, alerts: Sequence[Alert]) -> bool:
    """Tell whether an alert of its machine announced a failure."""
    return any(
        alert.at < failure.at <= alert.horizon
        and (not failure.gpu_serial or alert.gpu_serial in (None, failure.gpu_serial))
        for alert in alerts
    )


def _missed_share(
    missed: Sequence[Failure], failures: Sequence[Failure], resampling: Resampling
) -> Figure:
    above, below = (
        resampling.weights([failure.machine for failure in group]).sum(axis=1)
        for group in (missed, failures)
    )
    return figure(ratio(above, below), "no failure is known")


def _minutes(alerts: Sequence[Alert], resampling: Resampling) -> Figure:
    isolated = [(a, a.isolated_at) for a in alerts if a.isolated_at is not None]
    isolated.sort(key=lambda pair: pair[1] - pair[0].at)
    minutes = np.array([(at - alert.at) / MINUTE for alert, at in isolated])
    weights = resampling.weights([alert.machine for alert, _ in isolated])
    return figure(_medians(minutes, weights), "no machine was isolated")


def _medians(ordered: Floats, weights: Floats) -> Floats:
    """Return the weighted median of ordered values for each row of weights; NaN without any."""
    totals = weights.sum(axis=1)
    if not len(ordered):
        return np.full(len(totals), np.nan)
    middle = np.argmax(np.cumsum(weights, axis=1) >= totals[:, None] / 2, axis=1)
    return np.where(totals > 0, ordered[middle], np.nan)


# --- GPU-hours ------------------------------------------------------------------------------------


def _hours_saved(
    alerts: Sequence[Alert], judged: Sequence[Alert], costs: Costs, resampling: Resampling
) -> Floats:
    """Return the GPU-hours that planned stops saved, for each draw.

    Each machine that was emptied counts with the share of those left alone that failed, after its
    finding, later than it was emptied: an earlier failure would have hit the job all the same.
    """
    chances = _chances(judged, resampling)
    total = chances.sum(axis=1)
    saved = np.where(total > 0, 0.0, np.nan)
    lags = np.array([_lag(alert) for alert in judged])
    emptied = [(a, a.emptied_at) for a in alerts if a.predicted and a.emptied_at is not None]
    weights = resampling.weights([alert.machine for alert, _ in emptied])
    for number, (alert, at) in enumerate(emptied):
        rate = ratio(chances[:, lags > at - alert.at].sum(axis=1), total)
        saved = saved + weights[:, number] * rate * alert.job_gpus * costs.hours_saved
    return saved


def _lag(alert: Alert) -> float:
    """Return how long after its finding an alert failed; minus infinity if it did not."""
    if alert.outcome is not Outcome.CONFIRMED:
        return -np.inf
    return np.inf if alert.failed_at is None else float(alert.failed_at - alert.at)


def _hours_isolated(alerts: Sequence[Alert], now: Nanoseconds, resampling: Resampling) -> Floats:
    isolated = [(a, a.isolated_at) for a in alerts if a.predicted and a.isolated_at is not None]
    hours = np.array([a.gpus * max(0, (a.back_at or now) - start) / HOUR for a, start in isolated])
    totals: Floats = resampling.weights([alert.machine for alert, _ in isolated]) @ hours
    return totals
