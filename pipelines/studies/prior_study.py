"""`forewarn study alarms` and `prior`: false alarms on healthy days, and the effect of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forewarn.evaluation.simulation.tasks.task_simulator import (
    SimulatedTask,
    draw_machine_count,
    healthy_task,
)
from forewarn.features.array_types import BoolArray, Float64Array, Int64Array
from forewarn.features.time_units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from forewarn.models.detection.detector import Detector
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.sandbox.simulate_tasks import task_slice
from forewarn.pipelines.storage.evidence.at_risk_prior import list_weights
from forewarn.pipelines.studies.detection_study import StudySet

__all__ = ["alarm_figures", "alarm_text", "prior_figures", "prior_text"]


_CHUNK_SECONDS = 2 * SECONDS_PER_HOUR  # seconds per call, as in `detect watch`
_EARLIER_SECONDS = 3 * _CHUNK_SECONDS  # observed before the day; an adversarial list is based on it
_MAX_MACHINES = 64
_LISTED_SHARE = 0.1  # share of the machines, at least one
_N_RANDOM_LISTS = 100  # lists per day


@dataclass(frozen=True, slots=True)
class _Day:
    """Peak scores of the machines of a healthy task.

    Attributes
    ----------
    machines : tuple of str
    earlier, reached : ndarrays of shape (n_metrics, n_machines)
        Peaks in the hours before the day, and during the day.
    """

    machines: tuple[str, ...]
    earlier: Float64Array
    reached: Float64Array

    def alarms(self, detector: Detector, listed: BoolArray) -> int:
        """Return the number of machines with an alarm, given a list."""
        weights = list_weights(listed)
        named = np.zeros(len(self.machines), dtype=bool)
        for model, reached in zip(detector.metrics, self.reached, strict=True):
            if model.threshold is not None:
                named |= reached >= model.threshold.with_prior(self.machines, weights)
        return int(named.sum())


def _nearest_to_alarm(
    detector: Detector, machines: Sequence[str], reached: Float64Array
) -> Int64Array:
    """Return the machines by the ratio of their peak score to the threshold, highest first."""
    shares = [
        of_metric / model.threshold.for_machines(machines)
        for model, of_metric in zip(detector.metrics, reached, strict=True)
        if model.threshold is not None
    ]
    return np.argsort(-np.max(shares, axis=0))


def alarm_figures(detector: Detector, n_days: int, seed: int) -> dict[str, Any]:
    """Count false alarms on simulated healthy task-days, without a list and with wrong lists.

    Parameters
    ----------
    detector : Detector
    n_days : int
        Task-days. Each task has 4 to 64 machines, some with permanent deviations.
    seed : int

    Returns
    -------
    dict
        By list: alarms per task and day, with a bootstrap interval over days. `random` is the mean
        over many lists. `adversarial` lists the machines nearest to an alarm in the six hours
        before. `hindsight` lists those nearest in the day itself, unknown to a real list.
    """
    counts: dict[str, list[float]] = {}
    sizes = []
    with progress_bar(n_days, "healthy days", "day") as bar:
        for number in range(n_days):
            generator = np.random.default_rng([seed, 4, number])
            n = draw_machine_count(generator, _MAX_MACHINES)
            day = _run_day(detector, healthy_task(generator, n, _EARLIER_SECONDS + SECONDS_PER_DAY))
            sizes.append(n)
            for name, lists in _lists(generator, detector, day).items():
                alarms = [day.alarms(detector, listed) for listed in lists]
                counts.setdefault(name, []).append(float(np.mean(alarms)))
            bar.update()
    rates = {name: _rate(np.array(alarms), seed) for name, alarms in counts.items()}
    return {"task_days": n_days, "machines": {"p50": float(np.median(sizes))}, "alarms": rates}


def _run_day(detector: Detector, task: SimulatedTask) -> _Day:
    """Run the detector on consecutive parts of a day, carrying over the machine baselines."""
    baselines: dict[str, MachineBaseline] = {}
    n = len(task.machines)
    reached = np.full((2, len(detector.metrics), n), -np.inf)
    overlap = detector.rules.continuity + detector.rules.window
    for begin in range(0, _EARLIER_SECONDS + SECONDS_PER_DAY, _CHUNK_SECONDS):
        first, when = max(begin - overlap, 0), int(begin >= _EARLIER_SECONDS)
        part = task_slice(task, first, begin + _CHUNK_SECONDS)
        adapted = detector.for_task(part)
        paused = adapted.pauses(part)
        for number, model in enumerate(detector.metrics):
            scored = adapted.examine(part, model, baselines.get(model.name), paused)
            if scored is not None:
                baselines[model.name] = scored.baseline
                highest = np.maximum(reached[when, number], scored.highest())
                reached[when, number] = highest
    return _Day(task.machines, reached[0], reached[1])


def _lists(
    generator: np.random.Generator, detector: Detector, day: _Day
) -> dict[str, list[BoolArray]]:
    """Return the lists to evaluate on a day, by kind."""
    n = day.reached.shape[1]
    m = max(1, round(_LISTED_SHARE * n))
    chosen = {
        "none": [np.empty(0, dtype=np.int64)],
        "random": [generator.choice(n, m, replace=False) for _ in range(_N_RANDOM_LISTS)],
        "adversarial": [_nearest_to_alarm(detector, day.machines, day.earlier)[:m]],
        "hindsight": [_nearest_to_alarm(detector, day.machines, day.reached)[:m]],
    }
    return {
        name: [np.isin(np.arange(n), machines) for machines in lists]
        for name, lists in chosen.items()
    }


def _rate(counts: Float64Array, seed: int) -> dict[str, Any]:
    """Return alarms per day with an interval; without alarms the upper bound is 3 / n."""
    n = len(counts)
    draws = np.random.default_rng(seed).integers(n, size=(1000, n))
    low, high = np.quantile(counts[draws].mean(axis=1), [0.025, 0.975])
    # Rule of three: resampling zero alarms gives no interval.
    return {
        "alarms": float(counts.sum()),
        "per_task_day": float(counts.mean()),
        "interval": [float(low), max(float(high), 3.0 / n)],
    }


def alarm_text(figures: Mapping[str, Any]) -> str:
    """Return the table for a terminal."""
    lines = [f"{figures['task_days']} healthy task-days, tasks of 4 to {_MAX_MACHINES} machines"]
    for name, rate in figures["alarms"].items():
        low, high = rate["interval"]
        lines.append(
            f"{'list: ' + name:20} {rate['alarms']:>6.1f} alarms, {rate['per_task_day']:.3f} per "
            f"task and day [{low:.3f}, {high:.3f}]"
        )
    return "\n".join(lines)


def prior_figures(data: StudySet, detector: Detector, seed: int) -> dict[str, Any]:
    """Compare verdicts with and without a list that contains the faulty machine and some others.

    Parameters
    ----------
    data : StudySet
    detector : Detector
    seed : int

    Returns
    -------
    dict
        `recall` without and with the list, and the seconds until the verdict in the pulls where
        both identify the right machine.
    """
    rows: list[tuple[float | None, float | None]] = []
    with progress_bar(len(data.truth), "prior", "pull") as bar:
        for number, pull in enumerate(data.pulls()):
            truth = str(data.truth.loc[pull.name, "machine"])
            if truth:
                weights = _helpful(pull.grid.machines, truth, [seed, number])
                plain = data.outcome(detector, pull)
                helped = data.outcome(detector, pull, weights)
                rows.append((plain.delay, helped.delay))
            bar.update()
    both = np.array([row for row in rows if None not in row], dtype=np.float64).reshape(-1, 2)
    gain = both[:, 0] - both[:, 1]
    recall = [float(np.mean([row[i] is not None for row in rows])) for i in range(2)]
    return {
        "faulty": len(rows),
        "recall": {"without": recall[0], "with": recall[1]},
        "delay_seconds": {"without": _median(both[:, 0]), "with": _median(both[:, 1])},
        "sooner_seconds": {"p50": _median(gain), "mean": float(gain.mean()) if len(gain) else None},
    }


def _median(values: Float64Array) -> float | None:
    return float(np.median(values)) if len(values) else None


def _helpful(machines: Sequence[str], truth: str, seed: Sequence[int]) -> Float64Array:
    generator = np.random.default_rng(seed)
    listed = generator.random(len(machines)) < _LISTED_SHARE / 2
    listed[machines.index(truth)] = True
    return list_weights(listed)


def prior_text(figures: Mapping[str, Any]) -> str:
    """Return the results as a few lines."""
    recall, delay, sooner = figures["recall"], figures["delay_seconds"], figures["sooner_seconds"]
    if sooner["p50"] is None:
        return f"{figures['faulty']} faulty pulls, none detected both with and without a list"
    return (
        f"{figures['faulty']} faulty pulls; recall without a list {recall['without']:.3f}, with "
        f"a list that contains the machine {recall['with']:.3f}\n"
        f"time to the verdict, median: {delay['without']:.0f} s without, {delay['with']:.0f} s "
        f"with; {sooner['mean']:.1f} s earlier on average"
    )
