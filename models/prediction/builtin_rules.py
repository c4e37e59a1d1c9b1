"""Built-in rules that rank GPUs before a site has any labelled failure."""

from __future__ import annotations

import numpy as np

from forewarn.features.array_types import Float64Array
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instance_history import span_name
from forewarn.features.prediction.model_inputs import InstanceValues
from forewarn.features.xid_catalogue import DEGRADED, FATAL
from forewarn.models.prediction.linear.log_odds import sigmoid

__all__ = ["BASE_LOG_ODDS", "rule_points", "rule_scores"]


# Points are log odds. They are expert judgement, not fitted: an event for which NVIDIA's catalogue
# asks for a reset outweighs everything else, and no single count does.
BASE_LOG_ODDS = -6.0
"""Log odds of an instance without points from any rule."""
_FATAL_POINTS, _FATAL_PAST, _DEGRADED_POINTS = 30.0, 2.0, 2.0
_HARD_COUNTERS = {"ecc_uncorrected": 2.5, "rows_remapped": 2.0}
_SOFT_SLOPE, _SOFT_MAX_POINTS = 0.5, 2.0
_PAST_SHARE = 0.5
_REPEAT_POINTS, _REPEAT_MAX_POINTS = 1.0, 2.0


def rule_scores(values: InstanceValues, plan: FeaturePlan) -> Float64Array:
    """Return scores of shape (n,) in [0, 1] from fatal Xids, counters against peers and repeats.

    Parameters
    ----------
    values : InstanceValues
    plan : FeaturePlan
        The plan by which the values were computed.
    """
    points = rule_points(values, plan)
    total = sum(points.values(), np.zeros(len(values)))
    return sigmoid(BASE_LOG_ODDS + total)


def rule_points(values: InstanceValues, plan: FeaturePlan) -> dict[str, Float64Array]:
    """Return the points that each rule gives to each instance, by feature name."""
    points: dict[str, Float64Array] = {}
    for name in plan.kinds.code:
        points |= _code_points(values, name)
    for name in plan.kinds.counter:
        points |= _counter_points(values, plan, name)
    for name in ("failures:serial", "failures:slot"):
        count = _column(values, name)
        if count is not None:
            points[name] = np.minimum(_REPEAT_POINTS * count, _REPEAT_MAX_POINTS)
    return points


def _column(values: InstanceValues, name: str) -> Float64Array | None:
    """Return a context column with missing values as 0; None if the plan does not include it."""
    if name not in values.context_names:
        return None
    column = values.context[:, values.context_names.index(name)]
    return np.nan_to_num(column.astype(np.float64), nan=0.0)


def _longest_span_column(values: InstanceValues, prefix: str) -> Float64Array | None:
    """Return the context column with this prefix over the longest span that a GPU has a past for.

    Spans are in ascending order. On the first days of a site the longest ones are missing.
    """
    names = [name for name in values.context_names if name.startswith(prefix)]
    if not names:
        return None
    columns = values.context[:, [values.context_names.index(name) for name in names]]
    longest = columns[:, -1].astype(np.float64)
    for shorter in columns.T[-2::-1]:
        longest = np.where(np.isnan(longest), shorter, longest)
    return np.nan_to_num(longest, nan=0.0)


def _code_points(values: InstanceValues, name: str) -> dict[str, Float64Array]:
    gravity = _column(values, f"severity:{name}")
    if gravity is None:
        count = _column(values, f"count:{name}")
        assert count is not None
        return {f"count:{name}": _soft_points(count)}
    now = np.where(gravity >= FATAL, _FATAL_POINTS, 0.0)
    now = np.where(gravity == DEGRADED, _DEGRADED_POINTS, now)
    past = _longest_span_column(values, f"rate:grave {name}:")
    points = {f"severity:{name}": now}
    if past is not None:
        points[f"rate:grave {name}"] = np.where(past > 0, _FATAL_PAST, 0.0)
    return points


def _counter_points(
    values: InstanceValues, plan: FeaturePlan, name: str
) -> dict[str, Float64Array]:
    window = values.sequence[..., values.sequence_names.index(name)]
    gained: Float64Array = np.asarray(np.nansum(window, axis=1, dtype=np.float64))
    past = _longest_span_column(values, f"rate:{name}:")
    if name in _HARD_COUNTERS:
        worth = _HARD_COUNTERS[name]
        points = {name: np.where(gained > 0, worth, 0.0)}
        if past is not None:
            points[f"rate:{name}"] = np.where(past > 0, _PAST_SHARE * worth, 0.0)
        return points
    return {name: _soft_points(_over_peers(values, plan, name, gained))}


def _over_peers(
    values: InstanceValues, plan: FeaturePlan, name: str, gained: Float64Array
) -> Float64Array:
    """Return the excess of a counter's increase in the window over that of its peers, >= 0."""
    excess = gained.copy()
    for group in plan.peers:
        label = f"peers:{group}:{name}:{span_name(plan.window)}"
        if label in values.context_names:
            more = values.context[:, values.context_names.index(label)] * plan.window_records
            excess = np.fmin(excess, np.maximum(more, 0.0))
    return excess


def _soft_points(count: Float64Array) -> Float64Array:
    return np.minimum(_SOFT_SLOPE * np.log1p(np.maximum(count, 0.0)), _SOFT_MAX_POINTS)
