"""Metrics that come too seldom to say anything within a continuity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.detection.sampling import cadence_of
from forewarn.features.duration import duration_in_words
from forewarn.pipelines.detection.task_metrics import FilePull, PullError
from forewarn.pipelines.runtime.progress import note

__all__ = ["frequent_metrics"]

_TASKS = 20  # that tell how often a metric comes


def frequent_metrics(
    tasks: Callable[[], Iterator[FilePull]],
    limits: Sequence[MetricLimits],
    interval: int,
    slowest: int,
) -> list[MetricLimits]:
    """Return the metrics that come often enough, and note which do not.

    All machines would be blind on the others, and nobody would be named on any metric.

    Parameters
    ----------
    tasks : callable
        Opens all tasks, one after the other.
    limits : sequence of MetricLimits
    interval : int
        Nanoseconds.
    slowest : int
        Ticks between two samples that are still often enough.

    Raises
    ------
    PullError
        If none does.
    """
    cadences: dict[str, list[int]] = {metric.name: [] for metric in limits}
    for pull in islice(tasks(), _TASKS):
        for name, of_tasks in cadences.items():
            sent = pull.as_sent(name)
            if sent is not None and np.isfinite(sent).any():
                of_tasks.append(cadence_of(sent.astype(np.float32)))
    usual = {name: int(np.median(of_tasks)) for name, of_tasks in cadences.items() if of_tasks}
    seldom = {name: ticks for name, ticks in usual.items() if ticks > slowest}
    if not seldom:
        return list(limits)
    words = ", ".join(
        f"`{name}` comes each {duration_in_words(ticks * interval / 1e9)}"
        for name, ticks in seldom.items()
    )
    enough = duration_in_words(slowest * interval / 1e9)
    if len(seldom) == len(limits):
        raise PullError(
            f"{words}: too seldom, expected each {enough} or more often: a quarter of "
            "`detection.continuity`; or a longer `detection.interval`."
        )
    note(f"{words}: too seldom for `detection.continuity` (each {enough} at most), left out")
    return [metric for metric in limits if metric.name not in seldom]
