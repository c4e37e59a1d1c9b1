"""Spreads measured in each training task, from which the healthy spread is fitted."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.fitting.spread_fitting import (
    TaskSpread,
    fit_healthy_spread,
    group_differences,
    group_levels,
    measure_task_spread,
    share_tolerance,
)
from forewarn.models.detection.healthy_spread import HealthySpread
from forewarn.models.detection.monitored_task import TaskSource

__all__ = ["TaskSpreads"]

_PerTask = TypeVar("_PerTask")
Differences = Mapping[str, Mapping[str, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class TaskSpreads:
    """Spreads and group offsets measured in each training task.

    Attributes
    ----------
    spreads : mapping of str to mapping of str to TaskSpread
        By metric and task; empty in mode `minder`.
    differences : mapping of str to mapping of str to mapping of str to float
        Offsets of small groups, by metric, task and group.
    """

    spreads: Mapping[str, Mapping[str, TaskSpread]]
    differences: Differences

    @classmethod
    def measure(
        cls, source: TaskSource, detector: Detector, metrics: Sequence[MetricModel]
    ) -> Self:
        """Measure every task.

        Parameters
        ----------
        source : callable
        detector : Detector
            Only its rules and its activity metric are used.
        metrics : sequence of MetricModel
        """
        differences = _differences(source, metrics)
        models = [_grouped(model, differences[model.name]) for model in metrics]
        return cls(_spreads(source, detector, models), differences)

    def fit(
        self, models: Sequence[MetricModel], out: Container[str] = (), *, contamination: float = 0.0
    ) -> list[MetricModel]:
        """Fit the healthy spread of each metric, and share the tolerance between metrics.

        Parameters
        ----------
        models : sequence of MetricModel
        out : container of str
            Tasks to exclude.
        contamination : float
            Share of the tasks that may contain a fault (`fit_healthy_spread`).
        """
        own = []
        for model in models:
            groups = group_levels(_exclude(self.differences[model.name], out).values())
            certain = list(_exclude(self.spreads[model.name], out).values())
            own.append(fit_healthy_spread(certain, groups, contamination=contamination))
        healthy = share_tolerance(own)
        return [
            replace(model, healthy=spread) for model, spread in zip(models, healthy, strict=True)
        ]


def _exclude(tasks: Mapping[str, _PerTask], out: Container[str]) -> dict[str, _PerTask]:
    """Return the tasks except some."""
    return {task: value for task, value in tasks.items() if task not in out}


def _differences(
    source: TaskSource, metrics: Sequence[MetricModel]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the offsets of small groups, by metric, task and group."""
    by_metric: dict[str, dict[str, dict[str, float]]] = {model.name: {} for model in metrics}
    for training in source():
        if training.task.in_small_group.any():
            for model in metrics:
                by_metric[model.name][training.name] = group_differences(
                    model.limits[0], training.task
                )
    return by_metric


def _grouped(model: MetricModel, differences: Mapping[str, Mapping[str, float]]) -> MetricModel:
    return replace(model, healthy=HealthySpread(groups=group_levels(differences.values())))


def _spreads(
    source: TaskSource, detector: Detector, metrics: Sequence[MetricModel]
) -> dict[str, dict[str, TaskSpread]]:
    """Return the spread of each task on each metric; nothing in mode `minder`."""
    by_metric: dict[str, dict[str, TaskSpread]] = {model.name: {} for model in metrics}
    if detector.rules.mode == "minder":
        return by_metric
    for training in source():
        adapted = replace(detector, metrics=metrics).for_task(training.task)
        for model in metrics:
            spread = measure_task_spread(adapted, model, training.task)
            if spread is not None:
                by_metric[model.name][training.name] = spread
    return by_metric
