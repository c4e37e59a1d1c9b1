"""What lists of each length would have been worth: precision, failures caught, GPU-hours saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forewarn.evaluation.bootstrap import interval
from forewarn.evaluation.prediction.action_costs import ActionCosts
from forewarn.evaluation.prediction.daily_list import raise_alerts
from forewarn.evaluation.prediction.kept_promise import JudgedAlerts, Promise, judge_promise
from forewarn.evaluation.prediction.score_table import ScoreTable
from forewarn.models.prediction.ensembles import top_k_count

__all__ = ["list_promise", "list_worth", "listed_alerts"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_DAYS_OF_A_MONTH = 30.0
_RANKED_BY = "blend"


@dataclass(frozen=True, slots=True)
class ListedAlerts:
    """The alerts of some lists.

    Attributes
    ----------
    row : ndarray of shape (n,)
        Row of the table of scores behind each alert, by time.
    raised_at : ndarray of shape (n,)
        When the list was made.
    hit : ndarray of shape (n,), bool
        The GPU fails within the horizon.
    caught : ndarray of shape (n,), bool
        The first alert of its failure.
    """

    row: Ints
    raised_at: Ints
    hit: Flags
    caught: Flags


def listed_alerts(table: ScoreTable, listed: Flags) -> ListedAlerts:
    """Return the alerts of daily lists: a GPU that stays on them raises none until it expires.

    Parameters
    ----------
    table : ScoreTable
    listed : ndarray of shape (n,), bool
        Which of `table.days` are on their list.
    """
    rows, moments = table.days.row[listed], table.days.day[listed]
    alerts = raise_alerts(
        table.gpu[rows], moments, table.fails_at[rows], horizon=table.protocol.horizon
    )
    listed_keys = zip(table.gpu[rows].tolist(), moments.tolist(), strict=True)
    row_of = dict(zip(listed_keys, rows.tolist(), strict=True))
    keys = zip(alerts.gpu.tolist(), alerts.raised_at.tolist(), strict=True)
    hit, seen = np.isfinite(alerts.fails_at), set[tuple[int, float]]()
    caught = np.zeros(len(hit), dtype=bool)
    for i in np.flatnonzero(hit).tolist():
        failure = int(alerts.gpu[i]), float(alerts.fails_at[i])
        caught[i] = failure in table.failures and failure not in seen
        seen.add(failure)
    row = np.array([row_of[key] for key in keys], dtype=np.int64)
    return ListedAlerts(row, alerts.raised_at, hit, caught)


@dataclass(frozen=True)
class _Ranking:
    """The day rows of a table with rank, size of the day and chance."""

    table: ScoreTable
    rank: Ints
    size: Ints
    probability: Floats

    @classmethod
    def of(cls, table: ScoreTable, method: str) -> _Ranking:
        days = table.days
        rank, size = np.zeros(len(days.row), dtype=np.int64), np.zeros(len(days.row), np.int64)
        for moment in np.unique(days.day).tolist():
            of_day = np.flatnonzero(days.day == moment)
            rank[of_day], size[of_day] = table.ranks(method, days.row[of_day]), len(of_day)
        probability = np.full(len(days.row), np.nan)
        if "probability" in table.frame:
            probability = table.frame["probability"].to_numpy(float)[days.row]
        return cls(table, rank, size, probability)

    def top(self, share: float) -> Flags:
        """Mark the first of each day, as many as a share of it."""
        sizes, which = np.unique(self.size, return_inverse=True)
        longest = np.array([top_k_count(share, n) for n in sizes.tolist()], dtype=np.int64)
        return np.asarray(self.rank <= longest[which])

    def chosen(self, share: float, costs: ActionCosts | None) -> Flags:
        """Mark what production would list: at most a share, and where prices are set what pays."""
        marked = self.top(share)
        return marked if costs is None else marked & costs.pays(self.probability)

    @property
    def n_days(self) -> int:
        return len(np.unique(self.table.days.day))


def list_worth(table: ScoreTable, costs: ActionCosts | None, k: float) -> dict[str, Any] | None:
    """Return the curve of list lengths, the chosen one, and what other ways would have cost.

    An alert costs its action once, and saves `costs.saved` if it is the first before a failure.

    Parameters
    ----------
    table : ScoreTable
    costs : ActionCosts, optional
        Without them there are no GPU-hours.
    k : float
        Share of the fleet of the paper's top K.

    Returns
    -------
    dict or None
        `curve`, `chosen` and `ways`; None where nothing was listed or scores have no blend.
    """
    if _RANKED_BY not in table.scores or not len(table.days.row):
        return None
    ranking = _Ranking.of(table, _RANKED_BY)
    share = table.protocol.share
    curve = [
        {"listed_per_day": n} | _worth(ranking, ranking.rank <= n, costs)
        for n in _lengths(ranking, max(k, share))
    ]
    chosen = ranking.chosen(share, costs)
    ways = {"nothing": _worth(ranking, np.zeros(len(chosen), dtype=bool), costs)}
    if "rules" in table.scores:
        rules = _Ranking.of(table, "rules")
        ways["rules"] = _worth(rules, rules.top(share), costs)
    ways |= {
        "top_share": _worth(ranking, ranking.top(share), costs),
        "top_k": _worth(ranking, ranking.top(k), costs),
    }
    by_chance = _worth(ranking, chosen, costs, by_chance=costs is not None)
    return {
        "ranked_by": _RANKED_BY,
        "costs": None if costs is None else costs.to_dict(),
        "days": ranking.n_days,
        "failures": len(table.failures),
        "curve": curve,
        "chosen": {"listed_per_day": float(chosen.sum()) / ranking.n_days} | by_chance,
        "empty_days": ranking.n_days - len(np.unique(table.days.day[chosen])),
        "ways": ways,
    }


def list_promise(table: ScoreTable, costs: ActionCosts | None) -> Promise | None:
    """Follow what the lists promised through a backtest, in windows with fitted probabilities.

    Every alert stayed in service there, so all weigh the same. None without probabilities.
    """
    if _RANKED_BY not in table.scores or "probability" not in table.frame:
        return None
    ranking = _Ranking.of(table, _RANKED_BY)
    chosen = ranking.chosen(table.protocol.share, costs)
    if "calibrated" in table.frame:
        chosen &= table.frame["calibrated"].to_numpy(bool)[table.days.row]
    size = {
        moment: int(chosen[table.days.day == moment].sum())
        for moment in np.unique(table.days.day).tolist()
    }
    alerts = listed_alerts(table, chosen)
    listed = zip(table.days.row[chosen].tolist(), table.days.day[chosen].tolist(), strict=True)
    rank_of = dict(zip(listed, ranking.rank[chosen].tolist(), strict=True))
    position = [
        min(1.0, rank_of[row, day] / size[day])
        for row, day in zip(alerts.row.tolist(), alerts.raised_at.tolist(), strict=True)
    ]
    probability = table.frame["probability"].to_numpy(float)[alerts.row]
    return judge_promise(JudgedAlerts.of(probability, alerts.hit, position))


def _lengths(ranking: _Ranking, longest_share: float) -> list[int]:
    """Return lengths of lists to draw, up to half more than the longest that is asked about."""
    most = max(3, int(1.5 * top_k_count(longest_share, int(np.median(ranking.size)))))
    return sorted({round(length) for length in np.geomspace(1, most, 12)})


def _worth(
    ranking: _Ranking, listed: Flags, costs: ActionCosts | None, *, by_chance: bool = False
) -> dict[str, Any]:
    """Return the figures of some lists; the GPU-hours are those of a month."""
    table = ranking.table
    alerts = listed_alerts(table, listed)
    weights = table.draws[:, table.machine[alerts.row]]
    n, hits = len(alerts.row), int(alerts.hit.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = (weights * alerts.hit).sum(axis=1) / weights.sum(axis=1)
    figures: dict[str, Any] = {
        "alerts": n,
        "precision": hits / n if n else None,
        "precision_interval": interval(precision) if n else None,
        "failures_caught": int(alerts.caught.sum()),
    }
    if costs is None:
        return figures | {"gpu_hours": None, "gpu_hours_interval": None}
    price = np.full(n, costs.dearest)
    if by_chance:
        price = costs.cost_for(table.frame["probability"].to_numpy(float)[alerts.row])
    month = _DAYS_OF_A_MONTH / max(1, ranking.n_days)
    hours = (alerts.caught * costs.saved - price) * month
    draws = (weights * hours).sum(axis=1)
    return figures | {
        "gpu_hours": float(hours.sum()),
        "gpu_hours_interval": interval(draws) if n else (0.0, 0.0),
    }
