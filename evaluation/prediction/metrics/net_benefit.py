"""Net benefit of lists by length: precision, failures caught and GPU-hours saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.prediction.metrics.action_costs import ActionCosts
from forewarn.evaluation.prediction.metrics.daily_rankings import (
    RANKED_BY,
    DailyRankings,
    daily_list_alerts,
)
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.features.array_types import BoolArray
from forewarn.models.prediction.ensembles import top_k_count

__all__ = ["BenefitAtLength", "ListBenefit", "NetBenefit", "list_benefit"]

_DAYS_PER_MONTH = 30.0


@dataclass(frozen=True, slots=True)
class NetBenefit:
    """Benefit of some lists. GPU-hours are per month and None without costs."""

    alerts: int
    precision: float | None
    precision_interval: tuple[float, float] | None
    failures_caught: int
    gpu_hours: float | None = None
    gpu_hours_interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class BenefitAtLength:
    """Benefit of lists with a given number of GPUs per day."""

    listed_per_day: float
    worth: NetBenefit

    def to_dict(self) -> dict[str, Any]:
        """Return a flat, JSON-serializable dict."""
        return {"listed_per_day": self.listed_per_day} | asdict(self.worth)


@dataclass(frozen=True, slots=True)
class ListBenefit:
    """Benefit of lists of each length, of the production list, and of alternatives."""

    ranked_by: str
    costs: dict[str, object] | None
    days: int
    failures: int
    curve: Sequence[BenefitAtLength]
    chosen: BenefitAtLength
    empty_days: int
    ways: Mapping[str, NetBenefit]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        curve = [point.to_dict() for point in self.curve]
        return asdict(self) | {"curve": curve, "chosen": self.chosen.to_dict()}


def list_benefit(table: ScoreTable, costs: ActionCosts | None) -> ListBenefit | None:
    """Return the benefit by list length, of the production list, and of alternatives.

    An alert costs its action once. The first alert before a failure saves `costs.savings`.

    Parameters
    ----------
    table : ScoreTable
    costs : ActionCosts, optional
        Without costs, GPU-hours are not computed.

    Returns
    -------
    ListBenefit or None
        None without lists or without the blend of the scores.
    """
    if RANKED_BY not in table.scores or not len(table.days.row):
        return None
    ranking = DailyRankings.from_table(table, RANKED_BY)
    share, k = table.protocol.share, table.protocol.k
    curve = [
        BenefitAtLength(n, _net_benefit(ranking, ranking.rank <= n, costs))
        for n in _list_lengths(ranking, max(k, share))
    ]
    chosen = ranking.chosen(share, costs)
    ways = {"nothing": _net_benefit(ranking, np.zeros(len(chosen), dtype=bool), costs)}
    if "rules" in table.scores:
        rules = DailyRankings.from_table(table, "rules")
        ways["rules"] = _net_benefit(rules, rules.top(share), costs)
    ways |= {
        "top_share": _net_benefit(ranking, ranking.top(share), costs),
        "top_k": _net_benefit(ranking, ranking.top(k), costs),
    }
    by_chance = _net_benefit(ranking, chosen, costs, by_chance=costs is not None)
    return ListBenefit(
        ranked_by=RANKED_BY,
        costs=None if costs is None else costs.to_dict(),
        days=ranking.n_days,
        failures=len(table.failures),
        curve=curve,
        chosen=BenefitAtLength(float(chosen.sum()) / ranking.n_days, by_chance),
        empty_days=ranking.n_days - len(np.unique(table.days.day[chosen])),
        ways=ways,
    )


def _list_lengths(ranking: DailyRankings, longest_share: float) -> list[int]:
    """Return the list lengths of the curve, up to 1.5 times the longest requested length."""
    most = max(3, int(1.5 * top_k_count(longest_share, int(np.median(ranking.size)))))
    return sorted({round(length) for length in np.geomspace(1, most, 12)})


def _net_benefit(
    ranking: DailyRankings, listed: BoolArray, costs: ActionCosts | None, *, by_chance: bool = False
) -> NetBenefit:
    """Return the benefit of some lists; GPU-hours are per month."""
    table = ranking.table
    alerts = daily_list_alerts(table, listed)
    weights = table.draws[:, table.machine[alerts.row]]
    n, hits = len(alerts.row), int(alerts.hit.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = (weights * alerts.hit).sum(axis=1) / weights.sum(axis=1)
    figures = NetBenefit(
        alerts=n,
        precision=hits / n if n else None,
        precision_interval=percentile_interval(precision) if n else None,
        failures_caught=int(alerts.caught.sum()),
    )
    if costs is None:
        return figures
    price = np.full(n, costs.most_expensive)
    if by_chance:
        price = costs.cost_for(table.frame["probability"].to_numpy(float)[alerts.row])
    month = _DAYS_PER_MONTH / max(1, ranking.n_days)
    hours = (alerts.caught * costs.savings - price) * month
    draws = (weights * hours).sum(axis=1)
    bounds = percentile_interval(draws) if n else (0.0, 0.0)
    return replace(figures, gpu_hours=float(hours.sum()), gpu_hours_interval=bounds)
