"""The events of a simulated month that do not depend on actions: failures, alerts and jobs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forewarn.features.time_units import DAY, HOUR, Nanoseconds

__all__ = [
    "LIST_HOUR",
    "Breakdown",
    "ListQuality",
    "MonthJob",
    "MonthPlan",
    "SimulatedAlert",
    "plan_month",
]

# 400 training servers, 4.18 faults per 1,000 node-days, median downtime 0.85 days (InfiniteHBD's
# traces). A third of the machines return within hours, a tenth takes weeks.
_FAULTS_A_DAY = 4.18e-3
_DOWN_MEDIAN, _DOWN_SPREAD = 0.85, 1.5
# Job sizes in machines and their frequency: many small jobs, and a few that take most of the time.
_SIZES, _SHARES = (1, 2, 4, 8, 16), (0.4, 0.25, 0.15, 0.12, 0.08)
_HOURS_MEDIAN, _HOURS_SPREAD = 8.0, 1.2
_TARGET_UTILIZATION = 0.85  # share of the machines' time that jobs request
LIST_HOUR = Nanoseconds(6 * HOUR)
"""Time after midnight at which the list of a day is made."""


@dataclass(frozen=True, slots=True)
class ListQuality:
    """Quality of the daily list.

    Attributes
    ----------
    recall : float
        Share of the failures with an alert in the day before.
    precision : float
        Share of the alerts that are followed by a failure within a day.
    """

    recall: float = 0.3
    precision: float = 0.2


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A machine is down from `at` until `repaired`, nanoseconds since 1970 UTC."""

    machine: int
    at: Nanoseconds
    repaired: Nanoseconds


@dataclass(frozen=True, slots=True)
class SimulatedAlert:
    """A machine on the list of a day; `true` if it fails within the following day."""

    machine: int
    at: Nanoseconds
    true: bool


@dataclass(frozen=True, slots=True)
class MonthJob:
    """A submitted job: number of machines and hours of work."""

    number: int
    at: Nanoseconds
    machines: int
    hours: float


@dataclass(frozen=True, slots=True)
class MonthPlan:
    """The events of a month, before any action.

    Attributes
    ----------
    machines : int
    start, end : int
        Nanoseconds since 1970 UTC.
    breakdowns, alerts, jobs : tuple
        In order of time.
    """

    machines: int
    start: Nanoseconds
    end: Nanoseconds
    breakdowns: tuple[Breakdown, ...]
    alerts: tuple[SimulatedAlert, ...]
    jobs: tuple[MonthJob, ...]


def plan_month(
    machines: int, days: int, *, seed: int, start: Nanoseconds, odds: ListQuality | None = None
) -> MonthPlan:
    """Draw a month.

    Parameters
    ----------
    machines, days : int
    seed : int
    start : int
        A midnight, nanoseconds since 1970 UTC.
    odds : ListQuality, optional
    """
    rng = np.random.default_rng(seed)
    end = Nanoseconds(start + days * DAY)
    breakdowns = _breakdowns(rng, machines, start, end)
    return MonthPlan(
        machines=machines,
        start=start,
        end=end,
        breakdowns=breakdowns,
        alerts=_alerts(rng, machines, days, start, breakdowns, odds or ListQuality()),
        jobs=_jobs(rng, machines, days, start),
    )


def _breakdowns(
    rng: np.random.Generator, machines: int, start: Nanoseconds, end: Nanoseconds
) -> tuple[Breakdown, ...]:
    broken = []
    for machine in range(machines):
        at = float(start)
        while (at := at + rng.exponential(1 / _FAULTS_A_DAY) * DAY) < end:
            down = _DOWN_MEDIAN * np.exp(_DOWN_SPREAD * rng.standard_normal()) * DAY
            broken.append(Breakdown(machine, Nanoseconds(int(at)), Nanoseconds(int(at + down))))
            at += down
    return tuple(sorted(broken, key=lambda breakdown: breakdown.at))


def _alerts(
    rng: np.random.Generator,
    machines: int,
    days: int,
    start: Nanoseconds,
    breakdowns: tuple[Breakdown, ...],
    odds: ListQuality,
) -> tuple[SimulatedAlert, ...]:
    """Draw the lists: alerts for some failures, and false alerts according to the precision."""
    foreseen = [b for b in breakdowns if rng.random() < odds.recall]
    first = start + LIST_HOUR
    days_of = [(b.at - first) // DAY for b in foreseen]
    true = {(b.machine, day) for b, day in zip(foreseen, days_of, strict=True) if day >= 0}
    fails = {(b.machine, (b.at - first) // DAY) for b in breakdowns}
    n_false = rng.poisson(len(true) * (1 / odds.precision - 1)) if true else 0
    drawn = {(int(rng.integers(machines)), int(rng.integers(days))) for _ in range(n_false)}
    marked = true | (drawn - fails)
    alerts = [
        SimulatedAlert(m, Nanoseconds(first + day * DAY), (m, day) in true) for m, day in marked
    ]
    return tuple(sorted(alerts, key=lambda alert: (alert.at, alert.machine)))


def _jobs(
    rng: np.random.Generator, machines: int, days: int, start: Nanoseconds
) -> tuple[MonthJob, ...]:
    """Draw jobs until they request the target share of the machines' time."""
    left, plans = _TARGET_UTILIZATION * machines * days * 24, list[tuple[float, int, float]]()
    while left > 0:
        size = min(int(rng.choice(_SIZES, p=_SHARES)), machines)
        hours = float(np.clip(_HOURS_MEDIAN * np.exp(_HOURS_SPREAD * rng.standard_normal()), 1, 96))
        plans.append((float(rng.random() * days), size, hours))
        left -= size * hours
    plans.sort()
    return tuple(
        MonthJob(number, Nanoseconds(int(start + day * DAY)), size, hours)
        for number, (day, size, hours) in enumerate(plans, 1)
    )
