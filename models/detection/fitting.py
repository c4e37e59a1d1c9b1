"""Fits the thresholds of a detector to what healthy tasks reach, and tells which may not be so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.rules import SURE
from forewarn.models.detection.task import Task
from forewarn.models.detection.threshold import Threshold, fit_threshold

__all__ = ["Reached", "Suspect", "fit_metric_threshold", "reached_by", "sample_windows", "suspects"]

Floats = npt.NDArray[np.float32]

_DOUBTED = 0.1  # of the jobs may hold a fault that nobody labelled
_SHOWS = 0.05  # of the metrics, at least, a fault shows in
_FOLDS = 10
_RESTLESS = 0.02  # of the tasks
_FEWEST_JOBS = 5  # of fewer nobody can tell which is the odd one


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a task came on one metric.

    Attributes
    ----------
    highest : float
        Threshold at which it would just have named a machine.
    n_machines : int
    days : float
    machine : str
        Which would have been named.
    """

    highest: float
    n_machines: int
    days: float
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A training task that does not look healthy to a detector fitted without its job.

    Attributes
    ----------
    task, machine, metric : str
    score : float
        How many times the threshold it came to.
    """

    task: str
    machine: str
    metric: str
    score: float


def sample_windows(series: Floats, length: int, n: int, generator: np.random.Generator) -> Floats:
    """Draw windows without a missing sample, shape (at most n, length, parts).

    Parameters
    ----------
    series : ndarray of shape (parts, n_machines, n_ticks)
    length, n : int
    generator : numpy Generator
    """
    n_parts, n_machines, n_ticks = series.shape
    if n_ticks < length:
        return np.empty((0, length, n_parts), dtype=np.float32)
    machine = generator.integers(n_machines, size=2 * n)
    start = generator.integers(n_ticks - length + 1, size=2 * n)
    ticks = start[:, None] + np.arange(length)
    windows = series[:, machine[:, None], ticks].transpose(1, 2, 0)
    whole = ~np.isnan(windows).any(axis=(1, 2))
    return np.ascontiguousarray(windows[whole][:n])


def reached_by(detector: Detector, model: MetricModel, task: Task, days: float) -> Reached | None:
    """Return how far a task comes on a metric; None if nothing can be said of any machine."""
    done = detector.examine(task, model, None, detector.pauses(task))
    if done is None:
        return None
    highest = done.highest()
    most = int(highest.argmax()) if len(highest) else 0
    if not len(highest) or not np.isfinite(highest[most]):
        return None
    return Reached(float(highest[most]), len(task.machines), days, task.machines[most])


def fit_metric_threshold(reached: Sequence[Reached], per_day: float) -> Threshold:
    """Fit the threshold of a metric to what healthy tasks reach (`fit_threshold`).

    Without any task nothing can be named by it.
    """
    if not reached:
        return Threshold(base=float(np.log(1e6)), slope=0.0, margin=0.0, tail=0.05)
    return fit_threshold(
        [task.highest for task in reached],
        [task.n_machines for task in reached],
        [task.days for task in reached],
        per_day=per_day,
    )


def suspects(
    reached: Mapping[str, Mapping[str, Reached]], jobs: Mapping[str, str], per_day: float
) -> list[Suspect]:
    """Return the tasks that may hold a fault which nobody labelled.

    A tenth of the jobs, those that stand out most, are judged by thresholds that were fitted
    without any of them: faults that hide each other are found together.

    Parameters
    ----------
    reached : mapping of str to mapping of str to Reached
        By metric and task.
    jobs : mapping of str to str
        The job of every task.
    per_day : float
        False alarms by each metric, per task and day.
    """
    names = sorted(set(jobs.values()))
    if len(names) < _FEWEST_JOBS:
        return []
    strongest: dict[str, float] = dict.fromkeys(names, 0.0)
    for suspect in _judged(reached, reached, per_day):
        strongest[jobs[suspect.task]] = max(strongest[jobs[suspect.task]], suspect.score)
    most = max(1, int(_DOUBTED * len(names)))
    doubted = set(sorted(names, key=lambda job: -strongest[job])[:most])
    certain = {
        metric: {task: reach for task, reach in tasks.items() if jobs[task] not in doubted}
        for metric, tasks in reached.items()
    }
    steady = {metric for metric in reached if _is_steady(certain[metric], jobs, per_day)}
    by_task: dict[str, list[Suspect]] = {}
    for suspect in _judged(certain, reached, per_day):
        if jobs[suspect.task] in doubted and suspect.score >= SURE and suspect.metric in steady:
            by_task.setdefault(suspect.task, []).append(suspect)
    # Of many metrics any may do for once what it never did: that alone is no fault.
    least = int(np.ceil(_SHOWS * len(reached)))
    named = [max(by, key=lambda it: it.score) for by in by_task.values() if len(by) >= least]
    return sorted(named, key=lambda suspect: suspect.task)


def _is_steady(tasks: Mapping[str, Reached], jobs: Mapping[str, str], per_day: float) -> bool:
    """Tell whether a metric names nobody in jobs that its thresholds were not fitted to.

    Where it does, it is the metric that is restless, and not the task that stands out most on it.
    """
    names = sorted({jobs[task] for task in tasks})
    fold = {job: number % _FOLDS for number, job in enumerate(names)}
    alarms = 0
    for number in set(fold.values()):
        inside = [reach for task, reach in tasks.items() if fold[jobs[task]] != number]
        threshold = fit_metric_threshold(inside, per_day)
        alarms += sum(
            reach.highest >= threshold.at(reach.n_machines)
            for task, reach in tasks.items()
            if fold[jobs[task]] == number
        )
    return alarms <= _RESTLESS * len(tasks)


def _judged(
    fitted_to: Mapping[str, Mapping[str, Reached]],
    judged: Mapping[str, Mapping[str, Reached]],
    per_day: float,
) -> list[Suspect]:
    """Return how far each task comes on each metric, in thresholds fitted to some tasks."""
    judgements = []
    for metric, tasks in judged.items():
        threshold = fit_metric_threshold(list(fitted_to[metric].values()), per_day)
        for task, reach in tasks.items():
            score = reach.highest / threshold.at(reach.n_machines)
            judgements.append(Suspect(task, reach.machine, metric, score))
    return judgements
