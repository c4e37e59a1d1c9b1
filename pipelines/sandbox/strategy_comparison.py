"""Compares what a simulated month cost under several strategies, with paired intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forewarn.evaluation.bootstrap import Interval, mean_interval
from forewarn.evaluation.simulation.operations.month_plan import MonthPlan
from forewarn.evaluation.simulation.operations.simulated_cluster import Cluster, StopCosts
from forewarn.features.array_types import Float64Array
from forewarn.features.time_units import DAY, HOUR, Nanoseconds

__all__ = ["DailyCosts", "StrategyMonth", "comparison_lines", "run_drains"]

_STEP: Final = HOUR
Listed = Mapping[int, frozenset[int]]
"""Machines to drain for a day, by the time of the list in nanoseconds since 1970 UTC."""


class DailyCosts:
    """GPU-hours lost and isolated, by day."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._before, self.days = cluster, 0.0, list[float]()

    def end_day(self) -> None:
        """Add what the cluster has lost since the last call."""
        total = self._cluster.total.lost + self._cluster.total.isolated
        self.days.append(total - self._before)
        self._before = total


@dataclass(frozen=True, slots=True)
class StrategyMonth:
    """A month under one strategy.

    Attributes
    ----------
    name : str
    drains, killed, emptied : int
        Drains, jobs that failures ended, and failures that hit no job because of a drain.
    cost : ndarray of shape (n_days,)
        GPU-hours lost and isolated.
    """

    name: str
    drains: int
    killed: int
    emptied: int
    cost: Float64Array


def run_drains(plan: MonthPlan, costs: StopCosts, name: str, listed: Listed) -> StrategyMonth:
    """Simulate a month in which each listed machine is drained for a day, without limits."""
    cluster = Cluster(plan, costs)
    daily, drains = DailyCosts(cluster), 0
    for moment in range(plan.start + _STEP, plan.end + 1, _STEP):
        cluster.advance(Nanoseconds(moment))
        chosen = {m for at, machines in listed.items() if at <= moment < at + DAY for m in machines}
        drains += len(chosen - cluster.drained)
        cluster.drained.clear()
        cluster.drained |= chosen
        if (moment - plan.start) % DAY == 0:
            daily.end_day()
    total = cluster.total
    return StrategyMonth(name, drains, total.killed, total.emptied, np.array(daily.days))


def comparison_lines(months: Sequence[StrategyMonth], baseline: str) -> Iterator[str]:
    """Yield a table of strategies, each with its difference from the baseline.

    The interval is that of the mean difference if other days like these were drawn (95 %).
    """
    reference = next(month.cost for month in months if month.name == baseline)
    yield f"{'':16}{'drains':>8}{'killed':>8}{'avoided':>9}{'GPU-hours':>11}   against {baseline}"
    for month in months:
        total = month.cost.sum()
        against = "" if month.name == baseline else _difference(month.cost - reference)
        yield (
            f"{month.name:16}{month.drains:>8}{month.killed:>8}{month.emptied:>9}{total:>11,.0f}"
            f"   {against}"
        )
    yield (
        "(jobs that a failure ended; failures on drained machines; GPU-hours lost or isolated in "
        f"{len(reference)} days, the fewer the better; 95 % interval by resampling days)"
    )
    for month in months:
        if month.name != baseline:
            yield _conclusion(month.name, month.cost - reference, baseline)


def _difference(daily: Float64Array) -> str:
    low, high = _interval(daily)
    return f"{daily.sum():+,.0f} [{low:+,.0f} to {high:+,.0f}]"


def _conclusion(name: str, daily: Float64Array, baseline: str) -> str:
    low, high = _interval(daily)
    if low <= 0.0 <= high:
        return f"{name}: not distinguishable from {baseline}, the interval contains 0."
    how = "fewer" if high < 0.0 else "more"
    return f"{name}: {abs(daily.sum()):,.0f} GPU-hours {how} than {baseline}."


def _interval(daily: Float64Array) -> Interval:
    """Return the interval of the sum of the days."""
    low, high = mean_interval(daily)
    return low * len(daily), high * len(daily)
