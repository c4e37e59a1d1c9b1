"""Fits thresholds to the scores of healthy tasks, and finds tasks that may contain a fault."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from forewarn.features.array_types import Float32Array
from forewarn.models.detection.detection_rules import CONFIDENT_SCORE
from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.fitting.machine_levels import machine_levels
from forewarn.models.detection.joint_score import JOINT
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.monitored_task import Task
from forewarn.models.detection.threshold import Threshold, fit_threshold, log_scores, pooled_spread

__all__ = [
    "PeakScore",
    "Suspect",
    "find_suspects",
    "fit_joint_threshold",
    "fit_thresholds",
    "peak_scores",
    "sample_windows",
]


_CONTAMINATION = 0.1  # share of the jobs that may contain an unlabelled fault
_MIN_METRIC_SHARE = 0.05  # smallest share of the metrics on which a fault shows
_FOLDS = 10
_MAX_ALARM_SHARE = 0.02  # share of the tasks with alarms above which a metric is too noisy
_MIN_HABITUAL_JOBS = 2  # jobs in which machines always differed on a metric: then it is no fault
_MIN_JOBS = 5  # with fewer jobs no outlier can be identified
_MAX_OUTLIER_SHARE = 0.05  # share of the tasks that may be outliers of the joint score


@dataclass(frozen=True, slots=True)
class PeakScore:
    """The highest score of a task on one metric.

    Attributes
    ----------
    highest : float
        Highest threshold at which a machine would still have been identified.
    n_machines : int
    days : float
    machine : str
        The machine with that score.
    lasting : bool
        It has had such scores since its first sample.
    machines : tuple of str
    by_machine : ndarray of shape (n_machines,)
        Highest threshold that each machine reached; not finite where it has no score.
    """

    highest: float
    n_machines: int
    days: float
    machine: str = ""
    lasting: bool = False
    machines: tuple[str, ...] = ()
    by_machine: Float32Array = field(default_factory=lambda: np.empty(0, np.float32), compare=False)

    def without(self, levels: Mapping[str, float]) -> PeakScore:
        """Return the score after subtracting the levels of the machines."""
        own = np.array([levels.get(name, 0.0) for name in self.machines])
        beyond = np.exp(log_scores(self.by_machine) - own)[np.isfinite(self.by_machine)]
        return replace(self, highest=float(beyond.max()))


@dataclass(frozen=True, slots=True)
class Suspect:
    """A training task that looks faulty to a detector fitted without its job.

    Attributes
    ----------
    task, machine, metric : str
    score : float
        Highest score, in multiples of the threshold.
    lasting : bool
        On every metric that shows it, the machine has deviated since its first sample.
    """

    task: str
    machine: str
    metric: str
    score: float
    lasting: bool = False

    @property
    def why(self) -> str:
        """Reason for excluding the task."""
        return (
            f"{self.machine} reached {self.score:.1f} times the threshold of {self.metric} "
            "fitted without its job"
        )


def sample_windows(
    series: Float32Array, length: int, n: int, generator: np.random.Generator
) -> Float32Array:
    """Draw windows without missing samples, shape (at most n, length, parts).

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


def peak_scores(
    detector: Detector, models: Sequence[MetricModel], task: Task, days: float
) -> dict[str, PeakScore]:
    """Return the highest score of a task on each metric, and the joint one in mode `forewarn`.

    A metric on which no machine has a score is left out.
    """
    peaks: dict[str, PeakScore] = {}
    baselines: dict[str, MachineBaseline] = {}
    detector = replace(detector, metrics=models).for_task(task)
    paused = detector.pauses(task)
    for model in models:
        scored = detector.examine(task, model, None, paused)
        if scored is None:
            continue
        baselines[model.name] = scored.baseline
        peak = _peak(scored.highest(), task, days)
        if peak is not None:
            most, highest = task.machines.index(peak.machine), peak.highest
            is_lasting = highest > 0.0 and scored.is_lasting(most, highest / CONFIDENT_SCORE)
            peaks[model.name] = replace(peak, lasting=is_lasting)
    joint = detector.joint_scores(task, baselines)
    peak = None if joint is None else _peak(joint.highest(), task, days)
    return peaks if peak is None else {**peaks, JOINT: peak}


def _peak(highest: Float32Array, task: Task, days: float) -> PeakScore | None:
    """Return the highest score of any machine; None if no machine has a score."""
    most = int(highest.argmax()) if len(highest) else 0
    if not len(highest) or not np.isfinite(highest[most]):
        return None
    machines = task.machines
    return PeakScore(
        float(highest[most]), len(machines), days, machines[most], False, machines, highest
    )


def fit_thresholds(
    peak_scores: Mapping[str, Mapping[str, PeakScore]],
    per_day: float,
    out: Container[str] = (),
    *,
    stable_names: bool = False,
) -> dict[str, Threshold]:
    """Fit the threshold of each metric to the scores of healthy tasks (`fit_threshold`).

    Parameters
    ----------
    peak_scores : mapping of str to mapping of str to PeakScore
        By metric and task. A metric without any task gets a threshold that nothing reaches.
    per_day : float
        False alarms of each metric, per task and day.
    out : container of str
        Tasks to exclude.
    stable_names : bool
        Machine names are stable, so each machine gets its own threshold.
    """
    certain = {
        metric: [of_task for task, of_task in tasks.items() if task not in out]
        for metric, tasks in peak_scores.items()
    }
    spread = _spread(certain.values())
    thresholds = {metric: _fit_one(tasks, per_day, spread) for metric, tasks in certain.items()}
    return _by_machine(thresholds, certain, per_day) if stable_names else thresholds


def fit_joint_threshold(
    tasks: Mapping[str, PeakScore], per_day: float, *, stable_names: bool = False
) -> Threshold:
    """Fit the threshold of the joint score, whatever one odd task reached.

    A threshold is never below what a task of the fit reached, so one odd task would hide most
    faults. At most one task in twenty is left out, if a threshold fitted to the others alarms in
    it; outliers that mask each other are found together.

    Parameters
    ----------
    tasks : mapping of str to PeakScore
    per_day : float
        False alarms of the joint score, per task and day.
    stable_names : bool
        Machine names are stable, so each machine gets its own threshold.
    """

    def fit(out: Container[str], *, stable_names: bool = False) -> Threshold:
        return fit_thresholds({JOINT: tasks}, per_day, out, stable_names=stable_names)[JOINT]

    descending = sorted(tasks, key=lambda task: -tasks[task].highest)
    for n in range(int(_MAX_OUTLIER_SHARE * len(tasks)), 0, -1):
        outliers, threshold = descending[:n], fit(descending[:n])
        if all(tasks[task].highest >= threshold.at(tasks[task].n_machines) for task in outliers):
            return fit(outliers, stable_names=stable_names)
    return fit((), stable_names=stable_names)


def _by_machine(
    thresholds: Mapping[str, Threshold], certain: Mapping[str, Sequence[PeakScore]], per_day: float
) -> dict[str, Threshold]:
    """Fit a threshold per machine: the same distance above its own level for all machines."""
    levels = {
        metric: machine_levels((task.machines, task.by_machine) for task in tasks)
        for metric, tasks in certain.items()
    }
    beyond = {
        metric: [task.without(levels[metric]) for task in tasks]
        for metric, tasks in certain.items()
    }
    spread = _spread(beyond.values())
    return {
        metric: threshold.with_machine_levels(
            _fit_one(beyond[metric], per_day, spread, threshold.slope), levels[metric]
        )
        for metric, threshold in thresholds.items()
    }


def _spread(metrics: Iterable[Sequence[PeakScore]]) -> float:
    """Return the spread of log scores over all metrics."""
    return pooled_spread(
        ([task.highest for task in tasks], [task.n_machines for task in tasks]) for tasks in metrics
    )


def _fit_one(
    tasks: Sequence[PeakScore], per_day: float, spread: float, slope: float | None = None
) -> Threshold:
    if not tasks:
        return Threshold(base=float(np.log(1e6)), slope=0.0, margin=0.0, tail=0.05)
    return fit_threshold(
        [task.highest for task in tasks],
        [task.n_machines for task in tasks],
        [task.days for task in tasks],
        per_day=per_day,
        spread=spread,
        slope=slope,
    )


def find_suspects(
    peak_scores: Mapping[str, Mapping[str, PeakScore]], jobs: Mapping[str, str], per_day: float
) -> list[Suspect]:
    """Return the tasks that may contain an unlabelled fault.

    The tenth of the jobs with the highest scores is judged by thresholds fitted without any of
    them, so that faults that mask each other are found together. If machines of several jobs have
    differed on a metric since their first sample, that is normal variation and no fault.

    Parameters
    ----------
    peak_scores : mapping of str to mapping of str to PeakScore
        By metric and task.
    jobs : mapping of str to str
        The job of every task.
    per_day : float
        False alarms of each metric, per task and day.
    """
    names = sorted(set(jobs.values()))
    if len(names) < _MIN_JOBS:
        return []
    strongest: dict[str, float] = dict.fromkeys(names, 0.0)
    for suspect in _judge_tasks(peak_scores, peak_scores, per_day):
        strongest[jobs[suspect.task]] = max(strongest[jobs[suspect.task]], suspect.score)
    most = max(1, int(_CONTAMINATION * len(names)))
    doubted = set(sorted(names, key=lambda job: -strongest[job])[:most])
    certain = {
        metric: {task: reach for task, reach in tasks.items() if jobs[task] not in doubted}
        for metric, tasks in peak_scores.items()
    }
    spread = _spread([list(tasks.values()) for tasks in certain.values()])
    steady = {
        metric for metric in peak_scores if _is_steady(certain[metric], jobs, per_day, spread)
    }
    suspects = [
        suspect
        for suspect in _judge_tasks(certain, peak_scores, per_day)
        if jobs[suspect.task] in doubted
        and suspect.score >= CONFIDENT_SCORE
        and suspect.metric in steady
    ]
    by_task: dict[str, list[Suspect]] = {}
    for suspect in _drop_habitual(suspects, jobs):
        by_task.setdefault(suspect.task, []).append(suspect)
    # With many metrics, one of them exceeds its threshold by chance: that alone is no fault.
    least = int(np.ceil(_MIN_METRIC_SHARE * len(peak_scores)))
    named = [_strongest(by) for by in by_task.values() if len(by) >= least]
    return sorted(named, key=lambda suspect: suspect.task)


def _strongest(suspects: Sequence[Suspect]) -> Suspect:
    """Return the finding with the highest score; lasting only if all findings are."""
    first = max(suspects, key=lambda suspect: suspect.score)
    return replace(first, lasting=all(suspect.lasting for suspect in suspects))


def _drop_habitual(suspects: Sequence[Suspect], jobs: Mapping[str, str]) -> list[Suspect]:
    """Drop findings that have existed since the first sample in several jobs, per metric."""
    lasting = [suspect for suspect in suspects if suspect.lasting]
    habits = {
        metric
        for metric in {suspect.metric for suspect in lasting}
        if len({jobs[s.task] for s in lasting if s.metric == metric}) >= _MIN_HABITUAL_JOBS
    }
    return [s for s in suspects if not (s in lasting and s.metric in habits)]


def _is_steady(
    tasks: Mapping[str, PeakScore], jobs: Mapping[str, str], per_day: float, spread: float
) -> bool:
    """Tell whether a metric raises few alarms in jobs that its thresholds were not fitted to.

    If it raises many, the metric is noisy and its highest task is no outlier.
    """
    names = sorted({jobs[task] for task in tasks})
    fold = {job: number % _FOLDS for number, job in enumerate(names)}
    alarms = 0
    for number in set(fold.values()):
        inside = [reach for task, reach in tasks.items() if fold[jobs[task]] != number]
        threshold = _fit_one(inside, per_day, spread)
        alarms += sum(
            reach.highest >= threshold.at(reach.n_machines)
            for task, reach in tasks.items()
            if fold[jobs[task]] == number
        )
    return alarms <= _MAX_ALARM_SHARE * len(tasks)


def _judge_tasks(
    fitted_to: Mapping[str, Mapping[str, PeakScore]],
    peak_scores: Mapping[str, Mapping[str, PeakScore]],
    per_day: float,
) -> list[Suspect]:
    """Return each task's score on each metric, in multiples of thresholds fitted to some tasks."""
    judgements = []
    thresholds = fit_thresholds(fitted_to, per_day)
    for metric, tasks in peak_scores.items():
        for task, reach in tasks.items():
            score = reach.highest / thresholds[metric].at(reach.n_machines)
            judgements.append(Suspect(task, reach.machine, metric, score, reach.lasting))
    return judgements
