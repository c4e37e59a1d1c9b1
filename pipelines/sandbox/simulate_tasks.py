"""Writes simulated training tasks to a folder, like a monitoring system would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.evaluation.simulation.tasks.site_conditions import Conditions, draw_conditions
from forewarn.evaluation.simulation.tasks.task_simulator import (
    SimulatedTask,
    draw_machine_count,
    faulty_task,
    healthy_task,
)
from forewarn.evaluation.simulation.tasks.varied_tasks import draw_varied_count, varied_task
from forewarn.features.time_units import SECOND
from forewarn.models.detection.monitored_task import Task
from forewarn.pipelines.config.settings import DetectionTable
from forewarn.pipelines.runtime.progress import progress_bar
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.csv_table import write_csv
from forewarn.pipelines.storage.files.file_names import arrow_path

__all__ = ["metrics_table", "simulate_incidents_to", "task_slice"]

_PULL_SECONDS, _MAX_MACHINES = 900, 1500  # of a pull
_N_TRAINING_TASKS, _TRAIN_SECONDS, _TRAIN_FAULTY_SHARE, _TRAIN_MAX_MACHINES = 60, 1800, 0.03, 600
_BEGIN = np.datetime64("2025-01-01T00:00:00", "ns")


def metrics_table(
    task: SimulatedTask, begin: np.datetime64, seconds_apart: float = 1.0
) -> pa.Table:
    """Return a task's samples as one row per machine and sample; lost samples have no row."""
    n, n_samples = next(iter(task.samples.values())).shape
    has_sample = ~np.all([np.isnan(values) for values in task.samples.values()], axis=0).reshape(-1)
    step = np.timedelta64(round(seconds_apart * SECOND), "ns")
    times = np.tile(begin + np.arange(n_samples) * step, n)[has_sample]
    codes = np.repeat(np.arange(n, dtype=np.int32), n_samples)[has_sample]
    groups, group = np.unique(task.group, return_inverse=True)
    columns = {
        "timestamp": pa.array(times, pa.timestamp("ns", "UTC")),
        "machine": pa.DictionaryArray.from_arrays(codes, list(task.machines)),
        "group": pa.DictionaryArray.from_arrays(group.astype(np.int32)[codes], groups.tolist()),
    }
    for name, values in task.samples.items():
        received = values.reshape(-1)[has_sample]
        columns[name] = pa.array(received, from_pandas=True)  # NaN becomes null
    return pa.table(columns)


def task_slice(task: SimulatedTask, first: int, last: int) -> Task:
    """Return the samples [first, last) of a simulated task in the form the detector expects."""
    groups = np.unique(task.group, return_inverse=True)[1].astype(np.int64)

    def series(name: str) -> npt.NDArray[np.float32] | None:
        values = task.samples.get(name)
        return None if values is None else values[:, first:last]

    n = len(task.machines)
    return Task(task.machines, first, last - first, series, groups, np.ones(n), task.group)


@dataclass(frozen=True, slots=True)
class _FixedSite:
    """A site with fixed conditions.

    Attributes
    ----------
    largest : int
        Largest number of machines of a task.
    seconds : int
        Length of a task.
    interval : int
        Seconds between two samples.
    """

    largest: int = _MAX_MACHINES
    seconds: int = _PULL_SECONDS
    interval: int = 1

    def size(self, generator: np.random.Generator) -> int:
        """Draw the number of machines of a task."""
        return draw_machine_count(generator, self.largest)

    def task(self, generator: np.random.Generator, n: int, *, faulty: bool) -> SimulatedTask:
        """Simulate a task."""
        return (faulty_task if faulty else healthy_task)(generator, n, self.seconds)


@dataclass(frozen=True, slots=True)
class _VariedSite:
    """A site with randomly drawn conditions."""

    conditions: Conditions

    @staticmethod
    def draw(seed: int) -> _VariedSite:
        """Draw the conditions."""
        return _VariedSite(draw_conditions(np.random.default_rng([seed, 9])))

    @property
    def interval(self) -> int:
        """Seconds between two samples."""
        return self.conditions.seconds

    def size(self, generator: np.random.Generator) -> int:
        """Draw the number of machines of a task."""
        return draw_varied_count(generator, self.conditions)

    def task(self, generator: np.random.Generator, n: int, *, faulty: bool) -> SimulatedTask:
        """Simulate a task."""
        limits = [metric.limits for metric in DetectionTable().metrics]
        return varied_task(generator, self.conditions, limits, n, faulty=faulty)

    def configuration(self) -> str:
        """Return the configuration that a detector needs for the site."""
        continuity = self.conditions.continuity * self.interval
        return f'[detection]\ninterval = "{self.interval}s"\ncontinuity = "{continuity}s"\n'


_Site = _FixedSite | _VariedSite


def _write(task: SimulatedTask, folder: Path, begin: np.datetime64, interval: int) -> None:
    with replacing(folder / "part-0.parquet") as temporary:
        table = metrics_table(task, begin, interval)
        pq.write_table(table, arrow_path(temporary), compression="zstd")


def _train(seed: int, site: _Site) -> Iterator[tuple[str, SimulatedTask]]:
    """Simulate the training data: nearly all tasks are healthy."""
    for number in range(_N_TRAINING_TASKS):
        generator = np.random.default_rng([seed, 1, number])
        n = site.size(generator)
        faulty = generator.random() < _TRAIN_FAULTY_SHARE
        yield f"train-{number:03d}", site.task(generator, n, faulty=faulty)


def _pulls(
    n_faulty: int, n_healthy: int, seed: int, site: _Site
) -> Iterator[tuple[str, SimulatedTask]]:
    """Simulate pulls in random order."""
    kinds = np.array([True] * n_faulty + [False] * n_healthy)
    np.random.default_rng([seed, 2]).shuffle(kinds)
    for number, faulty in enumerate(kinds):
        generator = np.random.default_rng([seed, 3, number])
        n = site.size(generator)
        yield f"pull-{number:04d}", site.task(generator, n, faulty=bool(faulty))


def simulate_incidents_to(
    out: Path, *, n_faulty: int, n_healthy: int, seed: int, vary: bool = False
) -> None:
    """Simulate tasks and write their metrics and the ground truth about their faults.

    Writes `out/train` and `out/pulls`, both `task=NAME/part-0.parquet`, `out/truth.csv`, and with
    `vary` also `out/detect.toml`, the configuration for the site.

    Parameters
    ----------
    out : Path
        Created if it does not exist.
    n_faulty, n_healthy : int
        Numbers of pulls of 15 minutes.
    seed : int
        The same seed gives identical files.
    vary : bool
        Also draw the conditions of the site, such as its step time, noise, sizes and cadence.
    """
    site = _VariedSite.draw(seed) if vary else _FixedSite()
    before = (
        site if isinstance(site, _VariedSite) else _FixedSite(_TRAIN_MAX_MACHINES, _TRAIN_SECONDS)
    )
    rows = []
    with progress_bar(_N_TRAINING_TASKS + n_faulty + n_healthy, "simulate", "task") as bar:
        for name, task in _train(seed, before):
            _write(task, out / "train" / f"task={name}", _BEGIN, site.interval)
            bar.update()
        length = np.timedelta64(_PULL_SECONDS * site.interval, "s")
        for number, (name, task) in enumerate(_pulls(n_faulty, n_healthy, seed, site)):
            begin = _BEGIN + np.timedelta64(1, "D") + number * length
            _write(task, out / "pulls" / f"task={name}", begin, site.interval)
            rows.append(_truth(name, task, site.interval))
            bar.update()
    if isinstance(site, _VariedSite):
        with replacing(out / "detect.toml") as temporary:
            temporary.write_text(site.configuration(), encoding="utf-8")
    columns = ["task", "machine", "fault", "start_s", "machines"]
    with replacing(out / "truth.csv") as temporary:
        write_csv(pd.DataFrame(rows, columns=columns), temporary)


def _truth(
    name: str, task: SimulatedTask, interval: int
) -> tuple[str, str, str, float | None, int]:
    if not task.faults:
        return name, "", "", None, len(task.machines)
    (fault,) = task.faults
    machine = task.machines[fault.machine]
    return name, machine, fault.kind, round(fault.start * interval, 1), len(task.machines)
