"""Score of the response, and which parts of it are unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forewarn.features.array_types import Float64Array
from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.response.score.resampling import Estimate, Resampling, make_estimate, safe_ratio
from forewarn.response.score.scored_alert import ScoredAlert
from forewarn.response.state.incident import Outcome

__all__ = ["MIN_JUDGED_ALERTS", "JobStopCosts", "KnownFailure", "ResponseScore", "score_response"]

MIN_JUDGED_ALERTS = 60
"""Assessed alerts needed to tell a precision of 20 % from 10 %.

The criterion is more than 10 of 60: at 10 % it is met in 3 of 100 cases, at 20 % in 2 of 3.
"""
_NO_HOLDOUT = "no alert was left alone: set `control` above 0, or wait for the first"
_NO_OUTCOME = "no alert that was left alone has an outcome yet"
_DEFAULT_COST = Nanoseconds(10 * MINUTE)


@dataclass(frozen=True, slots=True)
class JobStopCosts:
    """Cost of stopping a job, in nanoseconds; `checkpoint` is the time between two checkpoints."""

    detection: Nanoseconds = _DEFAULT_COST
    scheduling: Nanoseconds = _DEFAULT_COST
    start: Nanoseconds = _DEFAULT_COST
    checkpoint: Nanoseconds = HOUR
    planned_restart: Nanoseconds = _DEFAULT_COST

    @property
    def hours_saved(self) -> float:
        """Hours that each GPU of a job gains by a planned stop; negative for a loss."""
        unplanned = self.detection + self.scheduling + self.start + self.checkpoint / 2
        return (unplanned - self.planned_restart) / HOUR


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """Known failure; `at` is in nanoseconds since 1970 UTC."""

    machine: str
    at: Nanoseconds
    gpu_serial: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseScore:
    """Score of the response.

    Attributes
    ----------
    precision : Estimate
        Share of predictions followed by a failure, measured on the holdout.
    apparent_precision : Estimate
        Confirmed share of the drained predictions, which is biased by the drains.
    left_alone, judged : int
        Alerts in the holdout, and those of them with a known outcome.
    days_to_answer : float or None
        Until enough outcomes tell 20 % from 10 %. 0: enough already, None: never.
    failures, missed : int
        All, and those without an earlier finding.
    missed_share : Estimate
    minutes_to_isolation : Estimate
        Median, from the first finding to a machine that takes no more jobs.
    gpu_hours_saved, gpu_hours_isolated, gpu_hours_net : Estimate
        For predictions alone.
    """

    precision: Estimate
    apparent_precision: Estimate
    left_alone: int
    judged: int
    days_to_answer: float | None
    failures: int
    missed: int
    missed_share: Estimate
    minutes_to_isolation: Estimate
    gpu_hours_saved: Estimate
    gpu_hours_isolated: Estimate
    gpu_hours_net: Estimate


def score_response(
    alerts: Sequence[ScoredAlert],
    failures: Sequence[KnownFailure],
    *,
    costs: JobStopCosts,
    since: Nanoseconds,
    now: Nanoseconds,
    n_machines: int = 0,
    seed: int = 0,
) -> ResponseScore:
    """Return the score of the response between two moments, with intervals by machines.

    Parameters
    ----------
    alerts : sequence of ScoredAlert
        From `since` on.
    failures : sequence of KnownFailure
        From `since` on.
    costs : JobStopCosts
    since, now : int
        Nanoseconds since 1970 UTC.
    n_machines : int
        Size of the fleet; machines without an alert or a failure are drawn too.
    seed : int
        Seed of the bootstrap.
    """
    names = [alert.machine for alert in alerts] + [failure.machine for failure in failures]
    resampling = Resampling(names, size=n_machines, seed=seed)
    left = [alert for alert in alerts if alert.left_alone is not None]
    judged = [alert for alert in left if alert.outcome in _JUDGED]
    saved = _hours_saved(alerts, judged, costs, resampling)
    isolated = _hours_isolated(alerts, now, resampling)
    by_machine = _by_machine(alerts)
    unknown = _NO_OUTCOME if left else _NO_HOLDOUT
    missed = [f for f in failures if not _announced(f, by_machine.get(f.machine, ()))]
    return ResponseScore(
        precision=make_estimate(_precision(judged, resampling), unknown),
        apparent_precision=_apparent(alerts, resampling),
        left_alone=len(left),
        judged=len(judged),
        days_to_answer=_days_to_answer(len(left), len(judged), (now - since) / DAY),
        failures=len(failures),
        missed=len(missed),
        missed_share=_missed_share(missed, failures, resampling),
        minutes_to_isolation=_minutes_to_isolation(alerts, resampling),
        gpu_hours_saved=make_estimate(saved, unknown),
        gpu_hours_isolated=make_estimate(isolated),
        gpu_hours_net=make_estimate(saved - isolated, unknown),
    )


_JUDGED = frozenset({Outcome.CONFIRMED, Outcome.NOT_CONFIRMED})


def _machines(alerts: Sequence[ScoredAlert]) -> list[str]:
    return [alert.machine for alert in alerts]


# --- precision ------------------------------------------------------------------------------------


def _inverse_propensities(judged: Sequence[ScoredAlert], resampling: Resampling) -> Float64Array:
    """Return the inverse-propensity weight of each assessed alert."""
    inverse = np.array([1.0 / (alert.left_alone or 1.0) for alert in judged])
    chances: Float64Array = resampling.weights(_machines(judged)) * inverse
    return chances


def _precision(judged: Sequence[ScoredAlert], resampling: Resampling) -> Float64Array:
    chances = _inverse_propensities(judged, resampling)
    confirmed = np.array([alert.outcome is Outcome.CONFIRMED for alert in judged], dtype=bool)
    return safe_ratio(chances[:, confirmed].sum(axis=1), chances.sum(axis=1))


def _apparent(alerts: Sequence[ScoredAlert], resampling: Resampling) -> Estimate:
    drained = [a for a in alerts if a.predicted and a.isolated_at is not None and a.outcome]
    weights = resampling.weights(_machines(drained))
    confirmed = np.array([alert.outcome is Outcome.CONFIRMED for alert in drained], dtype=bool)
    shares = safe_ratio(weights[:, confirmed].sum(axis=1), weights.sum(axis=1))
    return make_estimate(shares, "no drained prediction has an outcome")


def _days_to_answer(left_alone: int, judged: int, days: float) -> float | None:
    """Return the days until enough alerts are assessed, at the current rate of the holdout."""
    if judged >= MIN_JUDGED_ALERTS:
        return 0.0
    rate = (judged or left_alone) / days if days > 0 else 0.0
    return (MIN_JUDGED_ALERTS - judged) / rate if rate else None


# --- failures and minutes -------------------------------------------------------------------------


def _by_machine(alerts: Sequence[ScoredAlert]) -> dict[str, list[ScoredAlert]]:
    groups: dict[str, list[ScoredAlert]] = defaultdict(list)
    for alert in alerts:
        groups[alert.machine].append(alert)
    return groups


def _announced(failure: KnownFailure, alerts: Sequence[ScoredAlert]) -> bool:
    """Tell whether an alert of its machine preceded a failure and was still valid."""
    return any(
        alert.at < failure.at <= alert.horizon
        and (not failure.gpu_serial or alert.gpu_serial in (None, failure.gpu_serial))
        for alert in alerts
    )


def _missed_share(
    missed: Sequence[KnownFailure], failures: Sequence[KnownFailure], resampling: Resampling
) -> Estimate:
    above, below = (
        resampling.weights([failure.machine for failure in group]).sum(axis=1)
        for group in (missed, failures)
    )
    return make_estimate(safe_ratio(above, below), "no failure is known")


def _minutes_to_isolation(alerts: Sequence[ScoredAlert], resampling: Resampling) -> Estimate:
    isolated = [(a, a.isolated_at) for a in alerts if a.isolated_at is not None]
    isolated.sort(key=lambda pair: pair[1] - pair[0].at)
    minutes = np.array([(at - alert.at) / MINUTE for alert, at in isolated])
    weights = resampling.weights([alert.machine for alert, _ in isolated])
    return make_estimate(_medians(minutes, weights), "no machine was isolated")


def _medians(ordered: Float64Array, weights: Float64Array) -> Float64Array:
    """Return the weighted median of ordered values for each row of weights; NaN without any."""
    totals = weights.sum(axis=1)
    if not len(ordered):
        return np.full(len(totals), np.nan)
    middle = np.argmax(np.cumsum(weights, axis=1) >= totals[:, None] / 2, axis=1)
    return np.where(totals > 0, ordered[middle], np.nan)


# --- GPU-hours ------------------------------------------------------------------------------------


def _hours_saved(
    alerts: Sequence[ScoredAlert],
    judged: Sequence[ScoredAlert],
    costs: JobStopCosts,
    resampling: Resampling,
) -> Float64Array:
    """Return the GPU-hours that planned stops saved, for each draw.

    Each drained machine counts with the share of the holdout that failed later after its finding
    than this machine was drained: an earlier failure would have hit the job anyway.
    """
    chances = _inverse_propensities(judged, resampling)
    total = chances.sum(axis=1)
    saved = np.where(total > 0, 0.0, np.nan)
    lags = np.array([_lag(alert) for alert in judged])
    emptied = [(a, a.emptied_at) for a in alerts if a.predicted and a.emptied_at is not None]
    weights = resampling.weights([alert.machine for alert, _ in emptied])
    for number, (alert, at) in enumerate(emptied):
        rate = safe_ratio(chances[:, lags > at - alert.at].sum(axis=1), total)
        saved = saved + weights[:, number] * rate * alert.job_gpus * costs.hours_saved
    return saved


def _lag(alert: ScoredAlert) -> float:
    """Return the time from the finding to the failure; minus infinity without a failure."""
    if alert.outcome is not Outcome.CONFIRMED:
        return -np.inf
    return np.inf if alert.failed_at is None else float(alert.failed_at - alert.at)


def _hours_isolated(
    alerts: Sequence[ScoredAlert], now: Nanoseconds, resampling: Resampling
) -> Float64Array:
    isolated = [(a, a.isolated_at) for a in alerts if a.predicted and a.isolated_at is not None]
    hours = np.array([a.gpus * max(0, (a.back_at or now) - start) / HOUR for a, start in isolated])
    totals: Float64Array = resampling.weights([alert.machine for alert, _ in isolated]) @ hours
    return totals
