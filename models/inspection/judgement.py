"""Judgement of results: by absolute limits, siblings, accepted values, and the fleet.

No clock and no files. A first run beyond a learned criterion makes a unit `suspect`, a second
independent one `defective`; absolute limits need no second run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import pandas as pd

from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.features.inspection.check_table import CheckTable
from forewarn.models.inspection.criterion import MIN_UNITS, PooledTail
from forewarn.models.inspection.distributions import medoid
from forewarn.models.inspection.fleet_comparison import (
    MIN_EFFECT,
    Comparison,
    compare_levels,
    compare_scatter,
    compare_with_accepted,
)
from forewarn.models.inspection.result_groups import UNIT, ResultGroup, newest_runs, result_groups

__all__ = [
    "LIMITS_ONLY",
    "WEEKLY_FALSE_ALARMS",
    "CheckCriterion",
    "FalseAlarms",
    "Judgement",
    "judge",
]

WEEKLY_FALSE_ALARMS: Final = 0.1 / 1000
"""Wanted false alarms a machine and run, over all its checks: 0.1 in a fleet of 1,000."""

LIMITS_ONLY: Final = frozenset({"prolog", "precheck"})
"""Sets that run before jobs. At any learned rate most starts of a large job would meet an alarm."""

_MAX_MEDOID_UNITS: Final = 200
_MIN_MAJORITY: Final = 2.0 / 3.0
_MIN_SIBLINGS: Final = 3
_USELESS_LIMIT: Final = 0.1  # a check that cannot see a tenth
_NORMAL_QUARTILES: Final = 1.349  # between the quartiles of a normal distribution, in deviations
_STATUS_STATES: Final = {
    "failed": "failed",
    "timeout": "failed",
    "degraded": "degraded",
    "blind": "blind",
    "not_run": "not_run",
}


@dataclass(frozen=True, slots=True)
class CheckCriterion:
    """What was learned about a check in one group of equal hardware and software.

    Attributes
    ----------
    check : str
    units : int
        Machines, or parts of machines.
    reference : float
        Median of the reference, in the unit of the check.
    level_limit, scatter_limit, own_limit : float or None
        Relative distance from which a unit is beyond the criterion; None: not learned.
    medoid : str or None
        Machine that is nearest to all others; None in a large group.
    repeat_spread, unit_spread : float or None
        Robust relative spread of the values of a unit, and of the medians of units.
    useless : bool
        Whether values of a unit differ more than units do, and a tenth less would not be noticed.
    """

    check: str
    units: int
    reference: float
    level_limit: float | None
    scatter_limit: float | None
    own_limit: float | None
    medoid: str | None
    repeat_spread: float | None
    unit_spread: float | None
    useless: bool


@dataclass(frozen=True, slots=True)
class FalseAlarms:
    """How often healthy units of such a run are beyond a learned criterion, over all checks.

    Attributes
    ----------
    requested : float
    rate : float
        The same of one comparison.
    expected : float
        More than `requested` if the results are too few to support it.
    bound : float
        With a confidence of 95 %, if tails go on as they begin.
    learned_from : int
        Units from which tails were learned, of the comparison that had the fewest; 0 if none was.
    """

    requested: float
    rate: float
    expected: float
    bound: float
    learned_from: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """Judged units and the criteria they were judged by.

    Attributes
    ----------
    units : pandas.DataFrame
        A row for each check of each unit: `check`, `machine`, `slot`, `state` (`ok`, `suspect`,
        `defective`, `degraded`, `failed`, `blind` or `not_run`), `value` (median of the newest
        run), `compared` (what decided: `limit`, `siblings`, `own`, `fleet`, `scatter`, `status`,
        or what it was compared with), `reference`, `distance`, `limit`, `runs` (how many were
        beyond) and `text`.
    criteria : tuple of CheckCriterion
    false_alarms : FalseAlarms
    """

    units: pd.DataFrame
    criteria: tuple[CheckCriterion, ...]
    false_alarms: FalseAlarms


@dataclass(slots=True)
class _Compared:
    """Comparisons of one group, by what it was compared with."""

    group: ResultGroup
    check: CheckTable
    parts: dict[str, Comparison] = field(default_factory=dict)
    limits: dict[str, float | Float64Array] = field(default_factory=dict)
    siblings: BoolArray | None = None


def judge(
    results: pd.DataFrame,
    checks: Mapping[str, CheckTable],
    accepted: pd.DataFrame,
    *,
    false_alarms: float = WEEKLY_FALSE_ALARMS,
) -> Judgement:
    """Judge the newest run of each unit.

    Parameters
    ----------
    results, accepted : pandas.DataFrame
        In the columns of `check_results`, with an empty `slot` for a whole machine. `accepted` has
        the values with which machines were accepted, and may be empty.
    checks : mapping of str to CheckTable
        Definitions of the checks; results of others are judged by their status.
    false_alarms : float, optional
        Wanted false alarms a machine and run.

    Raises
    ------
    InputError
        If a result occurs twice.
    """
    runs = newest_runs(results)
    learned = runs[~runs["set"].isin(LIMITS_ONLY)]
    compared = [
        _compare(group, checks[group.check]) for group in result_groups(learned, accepted, checks)
    ]
    learned_alarms = _set_limits(compared, false_alarms * results["machine"].nunique())
    units = _by_status(runs, checks)
    for c in compared:
        _apply(units, c)
    return Judgement(units.reset_index(), tuple(map(_criterion, compared)), learned_alarms)


# --- comparisons ----------------------------------------------------------------------------------


def _compare(group: ResultGroup, check: CheckTable) -> _Compared:
    compared = _Compared(group, check)
    newest, higher = group.newest, check.value.better == "higher"
    own = group.accepted_rows()
    if check.value.better == "equal":
        compared.siblings = _unequal(group, own)
        return compared
    if "fleet" in check.compare and newest.sum() >= MIN_UNITS:
        levels = compare_levels(group.quantiles, higher_is_better=higher, judged=newest)
        scatter = compare_scatter(group.quantiles, newest)
        compared.parts |= {
            name: part for name, part in (("fleet", levels), ("scatter", scatter)) if part
        }
    if "own" in check.compare and (own[newest] >= 0).any():
        accepted = np.where((own >= 0)[:, None], group.quantiles[own], np.nan)
        compared.parts["own"] = compare_with_accepted(
            group.quantiles, accepted, higher_is_better=higher, judged=newest
        )
    return compared


def _unequal(group: ResultGroup, own: Int64Array) -> BoolArray:
    """Tell which rows differ from most siblings, from what was accepted, or within themselves."""
    first = group.quantiles[:, 0]
    unequal = first != group.quantiles[:, -1]
    values, numbers = np.unique(first[group.newest], return_counts=True)
    most = int(numbers.argmax()) if len(numbers) else 0
    n_siblings = numbers.sum()
    if n_siblings >= _MIN_SIBLINGS and numbers[most] >= _MIN_MAJORITY * n_siblings:
        unequal |= first != values[most]
    has_own = own >= 0
    return np.asarray(unequal | (has_own & (first != first[own])))


def _set_limits(compared: Sequence[_Compared], requested: float) -> FalseAlarms:
    """Learn the limits for the requested false alarms of a run, or the supported ones."""
    n_tests = sum(int(part.healthy.sum()) for c in compared for part in c.parts.values())
    rate = requested / max(1, n_tests)
    expected = bound = 0.0
    learned_from = []
    for name in ("fleet", "scatter", "own"):
        parts = [(c, c.parts[name]) for c in compared if name in c.parts]
        pooled = PooledTail.from_tails([part.tail for _, part in parts if part.tail is not None])
        learned_from += [pooled.units] if pooled.units else []
        supported = pooled.supported_rate(rate)
        n_parts = sum(int(part.healthy.sum()) for _, part in parts)
        expected += n_parts * supported
        bound += n_parts * pooled.bound(supported)
        for c, part in parts:
            if part.tail is not None:
                c.limits[name] = max(MIN_EFFECT, pooled.limit(part.tail, supported))
            elif name == "own":
                c.limits[name] = _own_limits(c.group, rate)
    return FalseAlarms(requested, rate, expected, bound, min(learned_from, default=0))


def _own_limits(group: ResultGroup, rate: float) -> Float64Array:
    """Return limits from how accepted values scatter, where few machines have any.

    As if values were normal and runs differed as much as repeats do. Infinite with too few values.
    """
    own = group.accepted_rows()
    spreads = _spreads(group.quantiles)[own]
    known = (own >= 0) & (group.counts[own] >= 5) & np.isfinite(spreads)
    limits = NormalDist().inv_cdf(1.0 - min(rate, 0.5)) * spreads
    return np.where(known, np.maximum(limits, MIN_EFFECT), np.inf)


def _spreads(quantiles: Float64Array) -> Float64Array:
    """Return the robust spread of each row, relative to its median."""
    low, middle, high = np.quantile(quantiles, [0.25, 0.5, 0.75], axis=1)
    scale = np.where(middle == 0.0, np.nan, np.abs(middle))
    return np.asarray((high - low) / _NORMAL_QUARTILES / scale)


# --- verdicts -------------------------------------------------------------------------------------


def _by_status(runs: pd.DataFrame, checks: Mapping[str, CheckTable]) -> pd.DataFrame:
    """Return the units, judged by the status of their newest run and by absolute limits."""
    newest = runs[runs["age"] == 0]
    ranks = {status: number for number, status in enumerate(["ok", *reversed(_STATUS_STATES)])}
    worst = newest["status"].map(ranks)
    rows = newest.assign(rank=worst).sort_values("rank", kind="stable")
    units = rows.groupby(UNIT, sort=True).agg(
        value=("value", "median"), status=("status", "last"), text=("text", "last")
    )
    units["state"] = units["status"].map(_STATUS_STATES).fillna("ok")
    units["compared"] = np.where(units["state"] == "ok", "", "status")
    for column in ("reference", "distance", "limit"):
        units[column] = np.nan
    units["runs"] = 0
    for name, reach, sign in (("min", "min", 1.0), ("max", "max", -1.0)):
        bounds = {
            check: bound
            for check, table in checks.items()
            if table.limit and (bound := getattr(table.limit, name)) is not None
        }
        extreme = newest.groupby(UNIT, sort=True)["value"].agg(reach).reindex(units.index)
        bound = pd.Series(units.index.get_level_values("check").map(bounds), units.index, float)
        outside = sign * extreme < sign * bound
        units.loc[outside, "state"] = "failed"
        units.loc[outside, "compared"] = "limit"
        units.loc[outside, "limit"] = bound[outside]
        units.loc[outside, "value"] = extreme[outside]
    return units.drop(columns="status")


def _apply(units: pd.DataFrame, compared: _Compared) -> None:
    """Set what comparisons say about the units of a group that are not bad by themselves."""
    rows = compared.group.rows
    newest = np.flatnonzero(compared.group.newest)
    index = pd.MultiIndex.from_frame(rows.loc[newest, ["machine", "slot"]].assign(check=""))
    keys = pd.MultiIndex.from_arrays(
        [
            np.full(len(newest), compared.group.check, dtype=object),
            index.get_level_values("machine"),
            index.get_level_values("slot"),
        ],
        names=UNIT,
    )
    verdicts = _verdicts(compared).iloc[newest].set_index(keys)
    unjudged = units.loc[keys, "state"].isin(["ok", "degraded"]).to_numpy()
    chosen = verdicts[unjudged]
    bad = chosen["runs"] > 0
    columns = ["compared", "reference", "distance", "limit", "runs"]
    units.loc[chosen.index, columns] = chosen[columns]
    units.loc[chosen.index[bad], "state"] = np.where(
        chosen.loc[bad, "runs"] >= 2, "defective", "suspect"
    )


def _verdicts(compared: _Compared) -> pd.DataFrame:
    """Return for each row what it was compared with, and in how many runs it was beyond.

    Where several comparisons apply, the one that exceeds its limit by the largest factor counts.
    """
    group = compared.group
    n_rows = len(group.rows)
    empty = {
        "compared": np.full(n_rows, "", dtype=object),
        "reference": np.full(n_rows, np.nan),
        "distance": np.full(n_rows, np.nan),
        "limit": np.full(n_rows, np.nan),
        "runs": np.zeros(n_rows, dtype=np.int64),
    }
    verdicts = pd.DataFrame(empty)
    if compared.siblings is not None:
        return verdicts.assign(compared="siblings", runs=_runs(group, compared.siblings))
    worst = np.zeros(n_rows)
    for name, limit in compared.limits.items():
        part = compared.parts[name]
        beyond = part.beyond(limit)
        exceeded = np.nan_to_num(part.distances / limit) * np.where(part.harmful, 1.0, 1e-9)
        worse = exceeded > worst
        worst = np.where(worse, exceeded, worst)
        values: dict[str, Any] = {
            "compared": name,
            "reference": np.broadcast_to(part.references, n_rows)[worse],
            "distance": part.distances[worse],
            "limit": np.broadcast_to(limit, n_rows)[worse],
            "runs": _runs(group, beyond)[worse],
        }
        for column, value in values.items():
            verdicts.loc[worse, column] = value
    return verdicts


def _runs(group: ResultGroup, beyond: BoolArray) -> Int64Array:
    """Return in how many of its newest runs, without a gap, each row's unit was beyond."""
    before = np.flatnonzero(group.at_age(1))
    units = pd.MultiIndex.from_frame(group.rows[["machine", "slot"]])
    positions = units[before].get_indexer(units)
    confirmed = np.append(beyond[before], False)[positions]
    return np.asarray(beyond.astype(np.int64) + (beyond & confirmed))


def _criterion(compared: _Compared) -> CheckCriterion:
    """Summarise what was learned about a check in a group."""
    group = compared.group
    quantiles = group.quantiles[group.newest]
    machines = group.rows.loc[group.newest, "machine"].to_numpy()
    small = MIN_UNITS <= len(quantiles) < _MAX_MEDOID_UNITS
    within = _median(_spreads(quantiles)) if quantiles.shape[1] > 1 else None
    between = _median(_spreads(np.median(quantiles, axis=1)[None, :])) if len(quantiles) else None
    limits = {name: float(np.median(limit)) for name, limit in compared.limits.items()}
    level = limits.get("fleet")
    noisy = within is not None and between is not None and within > between
    return CheckCriterion(
        group.check,
        len(quantiles),
        float(np.median(quantiles)) if len(quantiles) else float("nan"),
        level,
        limits.get("scatter"),
        limits.get("own"),
        str(machines[medoid(quantiles)]) if small and compared.parts else None,
        within,
        between,
        noisy and level is not None and level > _USELESS_LIMIT,
    )


def _median(values: Float64Array) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None
