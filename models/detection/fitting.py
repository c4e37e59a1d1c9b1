"""Fits what a detector knows of a metric: denoiser, what is usual, and the threshold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from forewarn.models.detection.detector import Detector, MetricModel
from forewarn.models.detection.own_past import Usual
from forewarn.models.detection.task import Task
from forewarn.models.detection.threshold import Threshold, fit_threshold

__all__ = ["Reached", "fit_metric_threshold", "fit_usual", "reached_by", "sample_windows"]

Floats = npt.NDArray[np.float32]

_FORGIVEN = 0.999  # of the machines of healthy tasks: what they always differ by is forgiven
_MARGIN = 2.0


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a task came on one metric without anything being wrong with it.

    Attributes
    ----------
    highest : float
        Threshold at which it would just have named a machine.
    n_machines : int
    days : float
    """

    highest: float
    n_machines: int
    days: float


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
    place = start[:, None] + np.arange(length)
    windows = series[:, machine[:, None], place].transpose(1, 2, 0)
    whole = ~np.isnan(windows).any(axis=(1, 2))
    return np.ascontiguousarray(windows[whole][:n])


def fit_usual(detector: Detector, model: MetricModel, tasks: Iterable[Task]) -> Usual:
    """Find what machines of healthy tasks differ by, and how much of it is there for good.

    Medians over tasks, so that a few faulty ones do no harm.
    """
    model = replace(model, usual=Usual())
    deviation, offsets, spreads = [], [], []
    for task in tasks:
        done = detector.examine(task, model, None, detector.pauses(task))
        if done is None or not done.past.blocks.size:
            continue
        spread = done.past.spread
        if np.isfinite(spread).any():
            deviation.append(float(np.nanmedian(spread)))
            spreads.append(_typical(spread))
            offsets.append(_typical(np.abs(done.past.offset)))
    if not deviation:
        return Usual(0.0, 0.0, 0.0)
    return Usual(
        float(np.median(deviation)),
        _MARGIN * float(np.quantile(np.concatenate(offsets), _FORGIVEN)),
        _MARGIN * float(np.quantile(np.concatenate(spreads), _FORGIVEN)),
    )


def _typical(values: Floats) -> Floats:
    """Return the median of each machine that has any."""
    there = values[np.isfinite(values).any(axis=1)]
    found: Floats = np.nanmedian(there, axis=1)
    return found


def reached_by(detector: Detector, model: MetricModel, task: Task, days: float) -> Reached | None:
    """Return how far a task comes on a metric; None if nothing can be said of any machine."""
    done = detector.examine(task, model, None, detector.pauses(task))
    if done is None:
        return None
    highest = float(done.highest().max(initial=-np.inf))
    return Reached(highest, len(task.machines), days) if np.isfinite(highest) else None


def fit_metric_threshold(reached: Sequence[Reached], per_day: float) -> Threshold:
    """Fit the threshold of a metric to what healthy tasks reach (`fit_threshold`).

    Without any task nothing can be named by it.
    """
    if not reached:
        return Threshold(base=float(np.log(1e6)), slope=0.0, margin=0.0, tail=0.05)
    return fit_threshold(
        [one.highest for one in reached],
        [one.n_machines for one in reached],
        [one.days for one in reached],
        per_day=per_day,
    )
