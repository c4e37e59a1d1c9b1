"""Fits how much machines of healthy tasks differ on a metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forewarn.features.array_types import Float32Array, Float64Array
from forewarn.features.detection.frozen_sensors import find_frozen, longest_runs
from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.healthy_spread import HealthySpread, Range, have_stable_names
from forewarn.models.detection.monitored_task import Task

__all__ = [
    "TaskSpread",
    "fit_healthy_spread",
    "group_differences",
    "group_levels",
    "measure_task_spread",
    "share_tolerance",
]


_TOLERATED_QUANTILE = (
    0.999  # quantile of healthy machines up to which a permanent difference is tolerated
)
_TOLERANCE_FACTOR = 2.0
_MIN_TASKS_PER_MACHINE = 8  # healthy tasks after which a machine's own range counts
_PRIOR_TASKS = 4.0  # tasks at which the common tolerance counts as much as a machine's own range
_MIN_NAME_SHARE = 0.25  # least share of the spread that follows the names of machines that persist
_MAX_FROZEN_SHARE = 0.05  # largest share of a metric's machines that may have a frozen sensor
_MIN_TASKS_PER_GROUP = 2  # tasks with a small group before its offset is used
_NEVER_FROZEN = 1_000_000_000  # ticks; no sensor of the metric is ever considered frozen


@dataclass(frozen=True, slots=True)
class TaskSpread:
    """Spread of one task on one metric, per machine; NaN where it cannot be measured.

    Attributes
    ----------
    machines : tuple of str
    deviation : float
        Median deviation of its machines from their peers.
    offset, spread : ndarray of shape (n_machines,)
        Medians over the blocks: signed difference from the peers, and size of the rest.
    still : ndarray of shape (n_machines,)
        Ticks of the longest run of one value that would count as a frozen sensor.
    """

    machines: tuple[str, ...]
    deviation: float
    offset: Float32Array
    spread: Float32Array
    still: Float32Array


def measure_task_spread(detector: Detector, model: MetricModel, task: Task) -> TaskSpread | None:
    """Measure a task's spread on a metric; return None if no machine can be measured."""
    still = _frozen_runs(detector, model, task)
    plain = replace(model, healthy=HealthySpread(still=_NEVER_FROZEN, groups=model.healthy.groups))
    scored = detector.examine(task, plain, None, detector.pauses(task))
    if still is None or scored is None or not np.isfinite(scored.baseline.spread).any():
        return None
    spread = scored.baseline.spread
    deviation = float(np.nanmedian(spread))
    return TaskSpread(
        task.machines,
        deviation,
        _machine_medians(scored.baseline.offset),
        _machine_medians(spread),
        still,
    )


def _frozen_runs(detector: Detector, model: MetricModel, task: Task) -> Float32Array | None:
    """Return each machine's longest run, in ticks, that the common rule considers frozen."""
    longest: Float32Array = np.zeros(len(task.machines), dtype=np.float32)
    for limits in model.limits:
        values = task.series(limits.name)
        if values is None:
            return None
        hangs = find_frozen(limits.scale(values), detector.rules.frozen_ticks)
        longest = np.maximum(longest, longest_runs(hangs))
    return longest


def _machine_medians(values: Float32Array) -> Float32Array:
    """Return the median of each machine; NaN for a machine without values."""
    out = np.full(len(values), np.nan, dtype=np.float32)
    measured = np.isfinite(values).any(axis=1)
    out[measured] = np.nanmedian(values[measured], axis=1)
    return out


def fit_healthy_spread(
    tasks: Sequence[TaskSpread], groups: Mapping[str, float], *, contamination: float = 0.0
) -> HealthySpread:
    """Fit how much machines of healthy tasks differ, and which part of it is permanent.

    Parameters
    ----------
    tasks : sequence of TaskSpread
    groups : mapping of str to float
        Offsets of small groups (`group_levels`).
    contamination : float
        Share of the tasks that may contain a fault; those with the largest differences are
        excluded.
    """
    if not tasks:
        return HealthySpread(0.0, 0.0, 0.0, groups=groups)
    offsets = [np.abs(task.offset[np.isfinite(task.offset)]) for task in tasks]
    spreads = [task.spread[np.isfinite(task.spread)] for task in tasks]
    offset = _TOLERANCE_FACTOR * _tolerated_value(offsets, contamination)
    return HealthySpread(
        deviation=float(np.median([task.deviation for task in tasks])),
        offset=offset,
        spread=_TOLERANCE_FACTOR * _tolerated_value(spreads, contamination),
        still=_frozen_limit(tasks),
        machines=_machine_ranges(tasks, offset),
        groups=groups,
    )


def share_tolerance(spreads: Sequence[HealthySpread]) -> list[HealthySpread]:
    """Let metrics without a permanent offset adopt the tolerance of the other metrics.

    Few machines have permanent offsets, each on some metrics only. If none of a few hundred
    machines had one on a metric, others still may. The tolerance is therefore at least the median
    over the metrics. This is not needed if machine names are stable: then the machines themselves
    have been observed.

    Parameters
    ----------
    spreads : sequence of HealthySpread
        All metrics of a site.

    Examples
    --------
    >>> own = [HealthySpread(offset=offset) for offset in (0.02, 0.2, 0.4, 0.0)]
    >>> [spread.offset for spread in share_tolerance(own)]
    [0.2, 0.2, 0.4, 0.0]
    """
    if have_stable_names(spreads):
        return list(spreads)
    measured = [spread.offset for spread in spreads if 0.0 < spread.offset < np.inf]
    least = float(np.median(measured)) if measured else 0.0
    return [replace(s, offset=max(s.offset, least)) if s.offset > 0.0 else s for s in spreads]


def _tolerated_value(values: Sequence[Float32Array], contamination: float) -> float:
    """Return a value that nearly all machines stay below, without the most extreme tasks."""
    ascending = sorted(
        (machines for machines in values if len(machines)),
        key=lambda machines: float(machines.max()),
    )
    certain = ascending[: len(ascending) - int(contamination * len(ascending))]
    return float(np.quantile(np.concatenate(certain), _TOLERATED_QUANTILE)) if certain else 0.0


def _frozen_limit(tasks: Sequence[TaskSpread]) -> int:
    """Return 0 if the common rule for frozen sensors fits, else a value that is never reached.

    Gauges of whole percents, and metrics on which nothing happens, are not frozen.
    """
    runs = np.concatenate([task.still for task in tasks])
    return _NEVER_FROZEN if (runs > 0).sum() > max(1.0, _MAX_FROZEN_SHARE * len(runs)) else 0


def _machine_ranges(tasks: Sequence[TaskSpread], common: float) -> dict[str, Range]:
    """Return the tolerated offsets of machines that were in many of the tasks.

    A machine's own range is shrunk towards the common tolerance: by the share of the spread that
    does not follow the names, and by the number of tasks.
    """
    by_machine: dict[str, list[float]] = {}
    for task in tasks:
        for machine, offset in zip(task.machines, task.offset.tolist(), strict=True):
            if np.isfinite(offset):
                by_machine.setdefault(machine, []).append(offset)
    measured = {
        name: np.array(offsets)
        for name, offsets in by_machine.items()
        if len(offsets) >= _MIN_TASKS_PER_MACHINE
    }
    share = _name_share(list(measured.values())) if measured else 0.0
    if share < _MIN_NAME_SHARE:
        return {}
    return {machine: _range(offsets, share, common) for machine, offsets in measured.items()}


def _name_share(offsets: Sequence[Float64Array]) -> float:
    """Return the share of the spread of offsets that follows machine names from task to task.

    If names are assigned per task, as ranks are, a machine differs from itself as much as from
    any other, and the share is 0.
    """
    own = np.concatenate([np.abs(machine - np.median(machine)) for machine in offsets])
    all_offsets = np.concatenate(offsets)
    pooled = float(np.median(np.abs(all_offsets - np.median(all_offsets))))
    return max(1.0 - float(np.median(own)) / pooled, 0.0) if pooled > 0.0 else 0.0


def _range(offsets: Float64Array, share: float, common: float) -> Range:
    weight = share * len(offsets) / (len(offsets) + _PRIOR_TASKS)
    middle = float(np.median(offsets))
    reach = _TOLERANCE_FACTOR * float(np.abs(offsets - middle).max())
    reach = weight * reach + (1.0 - weight) * common
    return weight * middle - reach, weight * middle + reach


def group_differences(limits: MetricLimits, task: Task) -> dict[str, float]:
    """Return the offset of each small group of a task from the machines of the task."""
    values = task.series(limits.name)
    small = np.flatnonzero(task.in_small_group)
    if values is None or not len(small) or not task.group_names:
        return {}
    levels = _machine_medians(limits.scale(values))
    if not np.isfinite(levels).any():
        return {}
    middle = float(np.nanmedian(levels))
    by_group: dict[str, list[float]] = {}
    for machine in small.tolist():
        if np.isfinite(levels[machine]):
            by_group.setdefault(task.group_of(machine), []).append(float(levels[machine]))
    return {
        group: float(np.median(levels_of_group)) - middle
        for group, levels_of_group in by_group.items()
    }


def group_levels(differences: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the median offset of each small group over the tasks that had it."""
    by_group: dict[str, list[float]] = {}
    for task in differences:
        for group, difference in task.items():
            by_group.setdefault(group, []).append(difference)
    return {
        group: float(np.median(values))
        for group, values in by_group.items()
        if len(values) >= _MIN_TASKS_PER_GROUP
    }
