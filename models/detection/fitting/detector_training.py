"""Trains a detector on mostly healthy tasks and cross-validates it by job."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.fitting.task_spreads import TaskSpreads
from forewarn.models.detection.fitting.threshold_fitting import (
    PeakScore,
    Suspect,
    find_suspects,
    fit_joint_threshold,
    fit_thresholds,
    peak_scores,
)
from forewarn.models.detection.healthy_spread import have_stable_names
from forewarn.models.detection.joint_score import JOINT
from forewarn.models.detection.monitored_task import TaskSource, job_name

__all__ = [
    "CrossValidation",
    "DetectorTerms",
    "TrainedDetector",
    "cross_validate",
    "train_detector",
    "with_thresholds",
]

_JOINT_SHARE = 0.5  # of the false alarms, for the joint score
_CONTAMINATION = 0.1  # share of the tasks that may contain an unlabelled fault
_MAX_FOLDS = 5


@dataclass(frozen=True, slots=True)
class DetectorTerms:
    """What to train a detector for.

    Attributes
    ----------
    rules : DetectionRules
    activity : str or None
    per_day : float
        Requested false alarms per task and day.
    labelled : frozenset of str
        Tasks that were labelled healthy; they are never excluded.
    joint_min_tasks : int
        Tasks from which on the joint score may name a machine.
    """

    rules: DetectionRules
    activity: str | None
    per_day: float
    labelled: frozenset[str] = frozenset()
    joint_min_tasks: int = 20


@dataclass(frozen=True, slots=True)
class TrainedDetector:
    """A detector and the data it was trained on.

    Attributes
    ----------
    detector : Detector
    excluded : tuple of Suspect
        Tasks excluded because they look faulty to a detector fitted without their job.
    spreads : TaskSpreads
    peak_scores : mapping of str to mapping of str to PeakScore
        By metric and task, including excluded tasks; `joint` among the metrics.
    """

    detector: Detector
    excluded: tuple[Suspect, ...]
    spreads: TaskSpreads
    peak_scores: Mapping[str, Mapping[str, PeakScore]]

    @property
    def tasks(self) -> set[str]:
        """Tasks that can be judged on some metric, without the excluded ones."""
        out = {suspect.task for suspect in self.excluded}
        return {task for tasks in self.peak_scores.values() for task in tasks} - out


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Verdicts on jobs that the detectors were not fitted to.

    Attributes
    ----------
    judged : int
        Number of tasks.
    days : float
    alarms : tuple of Suspect
    blind : float
        Share of the machines without a verdict.
    """

    judged: int
    days: float
    alarms: tuple[Suspect, ...]
    blind: float


def train_detector(
    source: TaskSource, metrics: Sequence[MetricModel], terms: DetectorTerms
) -> TrainedDetector:
    """Fit the healthy spread of each metric, exclude suspicious tasks, and fit the thresholds.

    Parameters
    ----------
    source : callable
        Opens the tasks one after the other, each time it is called.
    metrics : sequence of MetricModel
        Without thresholds; in mode `forewarn` the healthy spread is fitted too.
    terms : DetectorTerms
    """
    detector = Detector(terms.rules, (), terms.activity)
    spreads = TaskSpreads.measure(source, detector, metrics)
    peaks = _peak_scores(source, detector, spreads.fit(metrics, contamination=_CONTAMINATION))
    jobs = {task: job_name(task) for tasks in peaks.values() for task in tasks}
    doubtful = {
        metric: {task: reach for task, reach in tasks.items() if task not in terms.labelled}
        for metric, tasks in peaks.items()
        if metric != JOINT
    }
    excluded = tuple(find_suspects(doubtful, jobs, _share(metrics, terms)))
    out = {suspect.task for suspect in excluded}
    models = spreads.fit(metrics, _changed_tasks(excluded))
    peaks = _peak_scores(source, detector, models)
    detector = with_thresholds(detector, models, peaks, terms, out)
    return TrainedDetector(detector, excluded, spreads, peaks)


def cross_validate(
    source: TaskSource, trained: TrainedDetector, terms: DetectorTerms
) -> CrossValidation:
    """Judge every job with a detector fitted without it; jobs are grouped into folds.

    Parameters
    ----------
    source, terms
        As for `train_detector`.
    trained : TrainedDetector
    """
    tasks = trained.tasks
    jobs = sorted({job_name(task) for task in tasks})
    if len(jobs) < 2:
        return CrossValidation(0, 0.0, (), _blind_share(source, trained.detector, tasks))
    fold = {job: number % min(len(jobs), _MAX_FOLDS) for number, job in enumerate(jobs)}
    detectors = {}
    for number in sorted(set(fold.values())):
        unseen = {task for task in tasks if fold[job_name(task)] == number}
        detectors[number] = _fitted_without(trained, unseen, terms)
    alarms, blind, n_machines, days, judged = [], 0, 0, 0.0, 0
    for training in source():
        if training.name not in tasks:
            continue
        verdict, _ = detectors[fold[job_name(training.name)]].find(training.task)
        judged, days = judged + 1, days + training.days
        n_machines += len(training.task.machines)
        blind += len(set(verdict.blind) | set(verdict.too_small))
        for first in verdict.findings[:1]:
            machine = training.task.machines[first.machine]
            alarms.append(Suspect(training.name, machine, first.metric, first.score))
    return CrossValidation(judged, days, tuple(alarms), blind / max(n_machines, 1))


def _changed_tasks(excluded: Sequence[Suspect]) -> set[str]:
    """Return the tasks in which a machine changed during the task.

    A deviation since the first sample may be a fault or how that machine is. Until it is labelled,
    it counts as a tolerated difference.
    """
    return {suspect.task for suspect in excluded if not suspect.lasting}


def _blind_share(source: TaskSource, detector: Detector, tasks: set[str]) -> float:
    blind, n_machines = 0, 0
    for training in source():
        verdict, _ = detector.find(training.task)
        has_reach = training.name in tasks
        n_machines += len(training.task.machines)
        unseen = set(verdict.blind) | set(verdict.too_small)
        blind += len(unseen) if has_reach else len(training.task.machines)
    return blind / max(n_machines, 1)


def _fitted_without(trained: TrainedDetector, unseen: set[str], terms: DetectorTerms) -> Detector:
    """Fit spreads and thresholds without the unseen tasks."""
    detector = trained.detector
    changed = _changed_tasks(trained.excluded) | unseen
    models = trained.spreads.fit(detector.metrics, changed)
    out = {suspect.task for suspect in trained.excluded} | unseen
    return with_thresholds(detector, models, trained.peak_scores, terms, out)


def _peak_scores(
    source: TaskSource, detector: Detector, metrics: Sequence[MetricModel]
) -> dict[str, dict[str, PeakScore]]:
    by_metric: dict[str, dict[str, PeakScore]] = {model.name: {} for model in metrics}
    by_metric |= {JOINT: {}} if detector.rules.mode == "forewarn" else {}
    for training in source():
        peaks = peak_scores(detector, metrics, training.task, training.days)
        for name, peak in peaks.items():
            by_metric[name][training.name] = peak
    return by_metric


def with_thresholds(
    detector: Detector,
    models: Sequence[MetricModel],
    peaks: Mapping[str, Mapping[str, PeakScore]],
    terms: DetectorTerms,
    out: Container[str] = (),
) -> Detector:
    """Fit thresholds; the joint score gets half of the false alarms, the metrics equal shares.

    Parameters
    ----------
    detector : Detector
    models : sequence of MetricModel
    peaks : mapping of str to mapping of str to PeakScore
        By metric and task.
    terms : DetectorTerms
    out : container of str
        Tasks to exclude.
    """
    stable = detector.rules.mode == "forewarn"
    stable = stable and have_stable_names(model.healthy for model in models)
    alone = {metric: tasks for metric, tasks in peaks.items() if metric != JOINT}
    thresholds = fit_thresholds(alone, _share(models, terms), out, stable_names=stable)
    joint = {task: peak for task, peak in peaks.get(JOINT, {}).items() if task not in out}
    per_day = terms.per_day * _JOINT_SHARE
    return replace(
        detector,
        metrics=tuple(replace(model, threshold=thresholds[model.name]) for model in models),
        joint=fit_joint_threshold(joint, per_day, stable_names=stable) if joint else None,
        joint_names=len(joint) >= terms.joint_min_tasks,
    )


def _share(models: Sequence[MetricModel], terms: DetectorTerms) -> float:
    """Return the false alarms of each metric, per task and day."""
    joint = _JOINT_SHARE if terms.rules.mode == "forewarn" else 0.0
    return terms.per_day * (1.0 - joint) / len(models)
