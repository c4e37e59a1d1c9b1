"""Selects the metrics that a detector can be fitted to, and recognises counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from itertools import islice

import numpy as np

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.detection.sampling import Sampling, Steps, count_steps, median_cadence
from forewarn.features.duration import format_duration
from forewarn.features.time_units import SECOND
from forewarn.pipelines.detection.task_metrics import FilePull, PullError
from forewarn.pipelines.runtime.progress import note

__all__ = ["find_counters", "frequent_metrics", "mark_counters"]

Tasks = Callable[[], Iterator[FilePull]]

_RANGE_QUANTILE = 0.99  # quantile of the increases in a task
_MAX_SAMPLED_TASKS = 20  # tasks from which the cadence of a metric is determined


def find_counters(tasks: Tasks, names: Sequence[str]) -> frozenset[str]:
    """Return the metrics that never decrease on any machine, except for rare resets.

    Parameters
    ----------
    tasks : callable
        Opens all tasks, one after the other.
    names : sequence of str
        Metrics whose kind is not configured.
    """
    steps = dict.fromkeys(names, Steps())
    for pull in tasks():
        for name, so_far in list(steps.items()):
            samples = pull.as_sent(name)
            if samples is not None:
                steps[name] = so_far + count_steps(samples)
                if not steps[name].may_count:
                    del steps[name]
        if not steps:
            break
    return frozenset(name for name, step in steps.items() if step.counts_up)


def mark_counters(
    tasks: Tasks, limits: Sequence[MetricLimits], declared: Set[str], interval: int
) -> list[MetricLimits]:
    """Mark the metrics that only increase, and note which they are.

    Limits meant for the counter's value do not fit its increase: no machine would ever differ by
    the smallest relevant share. Such limits are replaced by a high quantile of the increase.

    Parameters
    ----------
    tasks : callable
    limits : sequence of MetricLimits
    declared : set of str
        Metrics whose kind is configured.
    interval : int
        Nanoseconds.
    """
    undeclared = [metric.name for metric in limits if metric.name not in declared]
    most = _max_increases(tasks, find_counters(tasks, undeclared))
    if not most:
        return list(limits)
    marked = [_limits_of_increase(m, most[m.name]) if m.name in most else m for m in limits]
    recognised = [metric for metric in marked if metric.name in most]
    note(_counters_text(recognised, format_duration(interval / SECOND)))
    return marked


def _limits_of_increase(metric: MetricLimits, most: float) -> MetricLimits:
    too_wide = not metric.log and most < metric.floor * (metric.high - metric.low)
    if too_wide and most > 0.0:
        return replace(metric, low=0.0, high=float(f"{most:.3g}"), counter=True)
    return replace(metric, counter=True)


def _max_increases(tasks: Tasks, counters: frozenset[str]) -> dict[str, float]:
    """Return the highest quantile of the increase per interval over the tasks, by counter."""
    most = dict.fromkeys(counters, 0.0)
    for pull in tasks() if counters else ():
        counting = replace(pull, sampling=Sampling(counters=counters))
        for name in counters:
            series = counting.series(name)
            if series is not None and np.isfinite(series).any():
                most[name] = max(most[name], float(np.nanquantile(series, _RANGE_QUANTILE)))
    return most


def _counters_text(limits: Sequence[MetricLimits], interval: str) -> str:
    names = ", ".join(f"`{metric.name}` ({metric.low:g} to {metric.high:g})" for metric in limits)
    return (
        f"classified as counters, because they never decrease: {names}; their increase per "
        f"{interval} is compared, with these limits. To override, set `kind` in "
        '`detection.metrics` to "counter" or "gauge"'
    )


def frequent_metrics(
    tasks: Tasks, limits: Sequence[MetricLimits], interval: int, slowest: int
) -> list[MetricLimits]:
    """Return the metrics that are sampled often enough, and note the others.

    On the others every machine would lack data, and no machine could be identified.

    Parameters
    ----------
    tasks : callable
        Opens all tasks, one after the other.
    limits : sequence of MetricLimits
    interval : int
        Nanoseconds.
    slowest : int
        Largest usable number of ticks between two samples.

    Raises
    ------
    PullError
        If no metric is sampled often enough.
    """
    cadences: dict[str, list[int]] = {metric.name: [] for metric in limits}
    for pull in islice(tasks(), _MAX_SAMPLED_TASKS):
        for name, of_tasks in cadences.items():
            sent = pull.as_sent(name)
            if sent is not None and np.isfinite(sent).any():
                of_tasks.append(median_cadence(sent.astype(np.float32)))
    typical = {name: int(np.median(of_tasks)) for name, of_tasks in cadences.items() if of_tasks}
    seldom = {name: ticks for name, ticks in typical.items() if ticks > slowest}
    if not seldom:
        return list(limits)
    words = ", ".join(
        f"`{name}` is sampled every {format_duration(ticks * interval / SECOND)}"
        for name, ticks in seldom.items()
    )
    enough = format_duration(slowest * interval / SECOND)
    if len(seldom) == len(limits):
        raise PullError(
            f"{words}: not often enough. Needed: every {enough} or more often (a quarter of "
            "`detection.continuity`), or a longer `detection.interval`."
        )
    note(f"{words}: not often enough for `detection.continuity` (every {enough}), ignored")
    return [metric for metric in limits if metric.name not in seldom]
