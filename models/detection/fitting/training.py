"""Trains a detector on tasks that were mostly healthy, and judges the jobs it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.fitting.shown_spreads import ShownSpreads
from forewarn.models.detection.fitting.threshold_fitting import (
    Reached,
    Suspect,
    fit_thresholds,
    reached_by,
    suspects,
)
from forewarn.models.detection.healthy_spread import names_tell
from forewarn.models.detection.rules import Rules
from forewarn.models.detection.task import Source, job_of

__all__ = ["LeftOut", "Terms", "Trained", "judge_left_out", "train"]

_DOUBTED = 0.1  # of the tasks may hold a fault that nobody labelled
_MOST_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Terms:
    """What a detector is trained for.

    Attributes
    ----------
    rules : Rules
    activity : str or None
    per_day : float
        False alarms per task and day.
    labelled : frozenset of str
        Tasks that somebody has called healthy: they are never left out.
    """

    rules: Rules
    activity: str | None
    per_day: float
    labelled: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Trained:
    """A detector and what it was trained on.

    Attributes
    ----------
    detector : Detector
    left_out : tuple of Suspect
        Tasks that look faulty to a detector fitted without their job.
    shown : ShownSpreads
    reached : mapping of str to mapping of str to Reached
        By metric and task, those left out as well.
    """

    detector: Detector
    left_out: tuple[Suspect, ...]
    shown: ShownSpreads
    reached: Mapping[str, Mapping[str, Reached]]

    @property
    def tasks(self) -> set[str]:
        """The tasks of which anything can be said, without those left out."""
        out = {suspect.task for suspect in self.left_out}
        return {task for tasks in self.reached.values() for task in tasks} - out


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What detectors said of jobs that they were not fitted to.

    Attributes
    ----------
    judged : int
        Tasks.
    days : float
    alarms : tuple of Suspect
    blind : float
        Share of the machines of which nothing could be said.
    """

    judged: int
    days: float
    alarms: tuple[Suspect, ...]
    blind: float


def train(source: Source, metrics: Sequence[MetricModel], terms: Terms) -> Trained:
    """Find what is usual on each metric, which tasks to leave out, and the thresholds.

    Parameters
    ----------
    source : callable
        Opens the tasks one after the other, each time that it is called.
    metrics : sequence of MetricModel
        Without a threshold; what is usual is fitted in mode `forewarn`.
    terms : Terms
    """
    detector = Detector(terms.rules, (), terms.activity)
    share = terms.per_day / len(metrics)
    shown = ShownSpreads.of(source, detector, metrics)
    reached = _reached(source, detector, shown.usual(metrics, doubted=_DOUBTED))
    jobs = {task: job_of(task) for tasks in reached.values() for task in tasks}
    doubtful = {
        metric: {task: reach for task, reach in tasks.items() if task not in terms.labelled}
        for metric, tasks in reached.items()
    }
    left_out = tuple(suspects(doubtful, jobs, share))
    out = {suspect.task for suspect in left_out}
    models = shown.usual(metrics, _changed(left_out))
    reached = _reached(source, detector, models)
    models = _thresholded(models, reached, out, share)
    return Trained(replace(detector, metrics=tuple(models)), left_out, shown, reached)


def judge_left_out(source: Source, trained: Trained, terms: Terms) -> LeftOut:
    """Judge every job by a detector that was fitted without it; jobs are taken together in folds.

    Parameters
    ----------
    source, terms
        As for `train`.
    trained : Trained
    """
    tasks = trained.tasks
    jobs = sorted({job_of(task) for task in tasks})
    if len(jobs) < 2:
        return LeftOut(0, 0.0, (), _blind_share(source, trained.detector, tasks))
    fold = {job: number % min(len(jobs), _MOST_FOLDS) for number, job in enumerate(jobs)}
    detectors = {}
    for number in sorted(set(fold.values())):
        unseen = {task for task in tasks if fold[job_of(task)] == number}
        detectors[number] = _fitted_without(trained, unseen, terms)
    alarms, blind, n_machines, days, judged = [], 0, 0, 0.0, 0
    for training in source():
        if training.name not in tasks:
            continue
        verdict, _ = detectors[fold[job_of(training.name)]].find(training.task)
        judged, days = judged + 1, days + training.days
        n_machines += len(training.task.machines)
        blind += len(set(verdict.blind) | set(verdict.too_small))
        for first in verdict.findings[:1]:
            machine = training.task.machines[first.machine]
            alarms.append(Suspect(training.name, machine, first.metric, first.score))
    return LeftOut(judged, days, tuple(alarms), blind / max(n_machines, 1))


def _changed(left_out: Sequence[Suspect]) -> set[str]:
    """Return the tasks in which a machine has become different.

    What has been so since the first sample may be a fault or how that machine is. Until somebody
    has labelled it, it counts for what machines may differ by.
    """
    return {suspect.task for suspect in left_out if not suspect.lasting}


def _blind_share(source: Source, detector: Detector, tasks: set[str]) -> float:
    blind, n_machines = 0, 0
    for training in source():
        verdict, _ = detector.find(training.task)
        has_reach = training.name in tasks
        n_machines += len(training.task.machines)
        unseen = set(verdict.blind) | set(verdict.too_small)
        blind += len(unseen) if has_reach else len(training.task.machines)
    return blind / max(n_machines, 1)


def _fitted_without(trained: Trained, unseen: set[str], terms: Terms) -> Detector:
    """Fit what is usual and the thresholds to the tasks that are left."""
    detector = trained.detector
    share = terms.per_day / len(detector.metrics)
    changed = _changed(trained.left_out) | unseen
    models = trained.shown.usual(detector.metrics, changed)
    out = {suspect.task for suspect in trained.left_out} | unseen
    models = _thresholded(models, trained.reached, out, share)
    return replace(detector, metrics=tuple(models))


def _reached(
    source: Source, detector: Detector, metrics: Sequence[MetricModel]
) -> dict[str, dict[str, Reached]]:
    by_metric: dict[str, dict[str, Reached]] = {model.name: {} for model in metrics}
    for training in source():
        for model in metrics:
            reached = reached_by(detector, model, training.task, training.days)
            if reached is not None:
                by_metric[model.name][training.name] = reached
    return by_metric


def _thresholded(
    models: Sequence[MetricModel],
    reached: Mapping[str, Mapping[str, Reached]],
    out: set[str],
    per_day: float,
) -> list[MetricModel]:
    """Give metrics thresholds: any may raise the alarm, so that each has its part of them."""
    same = names_tell(model.usual for model in models)
    thresholds = fit_thresholds(reached, per_day, out, names_tell=same)
    return [replace(model, threshold=thresholds[model.name]) for model in models]
