"""`forewarn study several`: machines that fail simultaneously, or one after another in a task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from forewarn.evaluation.bootstrap import percentile_interval
from forewarn.evaluation.simulation.tasks.task_simulator import (
    SimulatedTask,
    faulty_task,
    long_task,
)
from forewarn.features.time_units import SECONDS_PER_HOUR
from forewarn.models.detection.detector import Detector
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.sandbox.simulate_tasks import task_slice
from forewarn.pipelines.studies.detector_variants import DetectorVariants
from forewarn.pipelines.studies.pull_means import PullMeans

__all__ = ["several_figures", "several_text"]

_SIMULTANEOUS_CASES = (
    (4, 2),
    (8, 2),
    (32, 3),
    (128, 4),
)  # number of machines, and of simultaneous failures
_PULL_SAMPLES, _CALL_INTERVAL_SAMPLES = (
    900,
    480,
)  # samples per call, and between two calls
_LIFE_SECONDS = 6 * SECONDS_PER_HOUR
_FAULTS_PER_LIFE = (1, 2, 4, 8)  # faults during the lifetime of a task
_LIFE_MACHINES = (16, 64)  # range of machines per task
_EARLY_START_SECONDS = 60  # windows reach back, so a finding may start before the fault
_N_DRAWS = 1000

Counts = tuple[int, int, int]  # right, wrong and faulty machines


def several_figures(
    variants: DetectorVariants, names: Sequence[str], n_tasks: int, seed: int
) -> dict[str, Any]:
    """Count right and wrong culprits in tasks with several faulty machines.

    Parameters
    ----------
    variants : DetectorVariants
    names : sequence of str
        Names of methods.
    n_tasks : int
        Simulated tasks for each row of the tables.
    seed : int

    Returns
    -------
    dict
        By method, for simultaneous (`at_once`) and successive failures (`in_a_life`): recall and
        precision by machine, with bootstrap intervals over tasks. Detectors and simulated tasks
        count in samples, so the results hold for any sampling interval.
    """
    figures: dict[str, Any] = {}
    with progress_bar(
        len(names) * n_tasks * (len(_SIMULTANEOUS_CASES) + len(_FAULTS_PER_LIFE)), "study", "task"
    ) as bar:
        for name in names:
            bar.set_postfix_str(name)
            detector = variants.make(name)
            together, after = {}, {}
            for n, k in _SIMULTANEOUS_CASES:
                tasks = (
                    faulty_task(np.random.default_rng([seed, 5, n, i]), n, _PULL_SAMPLES, k)
                    for i in range(n_tasks)
                )
                counts = [_counted(bar, _detect_simultaneous(detector, task)) for task in tasks]
                together[f"{k} of {n}"] = _figures(counts)
            for k in _FAULTS_PER_LIFE:
                lives = (_simulate_life(seed, k, i) for i in range(n_tasks))
                after[str(k)] = _figures(
                    [_counted(bar, _detect_in_life(detector, t)) for t in lives]
                )
            figures[name] = {"at_once": together, "in_a_life": after}
    return {"tasks": n_tasks, "methods": figures}


def _counted(bar: Any, counts: Counts) -> Counts:
    bar.update()
    return counts


def _simulate_life(seed: int, k: int, number: int) -> SimulatedTask:
    generator = np.random.default_rng([seed, 6, k, number])
    return long_task(generator, int(generator.integers(*_LIFE_MACHINES)), _LIFE_SECONDS, k)


def _detect_simultaneous(detector: Detector | PullMeans, task: SimulatedTask) -> Counts:
    verdict, _ = detector.find(task_slice(task, 0, _PULL_SAMPLES))
    named = {finding.machine for finding in verdict.findings}
    faulty = {fault.machine for fault in task.faults}
    return len(named & faulty), len(named - faulty), len(faulty)


def _detect_in_life(detector: Detector | PullMeans, task: SimulatedTask) -> Counts:
    """Call the detector as in `detect watch`, carrying over the machine baselines."""
    spans = {
        fault.machine: (fault.start - _EARLY_START_SECONDS, fault.end) for fault in task.faults
    }
    right: set[int] = set()
    wrong: set[int] = set()
    for machine, since in _named(detector, task):
        begin, end = spans.get(machine, (0.0, 0.0))
        (right if begin < since < end else wrong).add(machine)
    return len(right), len(wrong), len(spans)


def _named(detector: Detector | PullMeans, task: SimulatedTask) -> Iterator[tuple[int, int]]:
    """Yield culprit and start second of the findings of overlapping calls."""
    baselines: Mapping[str, MachineBaseline] = {}
    for end in range(_PULL_SAMPLES, _LIFE_SECONDS + 1, _CALL_INTERVAL_SAMPLES):
        verdict, baselines = detector.find(
            task_slice(task, end - _PULL_SAMPLES, end), baselines, incremental=True
        )
        for finding in verdict.findings[:1]:
            yield finding.machine, end - _PULL_SAMPLES + finding.since


def _figures(counts: Sequence[Counts]) -> dict[str, Any]:
    table = np.array(counts, dtype=np.float64)
    n = len(table)
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), size=_N_DRAWS)
    right, wrong, faulty = (weights @ table).T
    total = table.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = total[0] / (total[0] + total[1])
        drawn = right / (right + wrong)
    return {
        "recall": float(total[0] / total[2]),
        "recall_interval": percentile_interval(right / faulty),
        "precision": None if np.isnan(precision) else float(precision),
        "precision_interval": percentile_interval(drawn),
        "wrong_per_task": float(total[1] / n),
        "all_named": float((table[:, 0] == table[:, 2]).mean()),
    }


def several_text(figures: Mapping[str, Any]) -> str:
    """Return the tables for a terminal."""
    lines = [f"{figures['tasks']} tasks for each row"]
    titles = {"at_once": "simultaneous failures", "in_a_life": "faults in six hours"}
    for part, title in titles.items():
        lines.append(f"\n{title:22}{'method':26}{'recall':>22}{'precision':>22}{'all found':>11}")
        for method, tables in figures["methods"].items():
            for row, recalls in tables[part].items():
                cells = "".join(f"{_cell(recalls, name):>22}" for name in ("recall", "precision"))
                lines.append(f"{row:22}{method:26}{cells}{recalls['all_named']:>11.2f}")
    return "\n".join(lines)


def _cell(cells: Mapping[str, Any], name: str) -> str:
    value, between = cells[name], cells[f"{name}_interval"]
    if value is None:
        return "-"
    return f"{value:.3f}" + (f" [{between[0]:.2f}, {between[1]:.2f}]" if between else "")
